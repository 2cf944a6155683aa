{{/* The selector of both tiers' pods and services. */}}
{{- define "bireme.monitor.selector" -}}
matchLabels: {{- omit (include "bireme.selector" (list . "io") | fromYaml) "app.kubernetes.io/component" | toYaml | nindent 2 }}
matchExpressions:
  - {key: app.kubernetes.io/component, operator: In, values: [io, query]}
{{- end }}

{{/*
The endpoint of a monitor. Job and instance have the values of OpenTelemetry's service and instance, so that alerts and
dashboards work with both ways of export.
*/}}
{{- define "bireme.monitor.endpoint" -}}
port: metrics
path: /metrics
interval: {{ .interval }}
relabelings:
  - {action: replace, sourceLabels: [__meta_kubernetes_pod_label_app_kubernetes_io_component], targetLabel: job, replacement: bireme-$1}
  - {action: replace, sourceLabels: [__meta_kubernetes_pod_name], targetLabel: instance}
{{- end }}
