{{/* Who may scrape: a rule of a NetworkPolicy's ingress. */}}
{{- define "bireme.networkPolicy.metrics" -}}
{{- if .Values.telemetry.metrics.enabled -}}
- ports:
    - {protocol: TCP, port: metrics}
  {{- with .Values.networkPolicy.metricsFrom }}
  from: {{- toYaml . | nindent 4 }}
  {{- end }}
{{- end }}
{{- end }}

{{/* The pods and services of both tiers. */}}
{{- define "bireme.monitor.selector" -}}
matchLabels: {{- omit (include "bireme.selector" (list . "io") | fromYaml) "app.kubernetes.io/component" | toYaml | nindent 2 }}
matchExpressions:
  - {key: app.kubernetes.io/component, operator: In, values: [io, query]}
{{- end }}

{{/*
How a node's port is scraped. Job and instance are what OpenTelemetry calls the service and its instance, so that
alerts and dashboards need not know how metrics came.
*/}}
{{- define "bireme.monitor.endpoint" -}}
port: metrics
path: /metrics
interval: {{ .interval }}
relabelings:
  - {action: replace, sourceLabels: [__meta_kubernetes_pod_label_app_kubernetes_io_component], targetLabel: job, replacement: bireme-$1}
  - {action: replace, sourceLabels: [__meta_kubernetes_pod_name], targetLabel: instance}
  {{- with .relabelings }}{{ toYaml . | nindent 2 }}{{ end }}
{{- with .metricRelabelings }}
metricRelabelings: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}
