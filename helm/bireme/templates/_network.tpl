{{/* Parts of the NetworkPolicies of both tiers. A policy applies to the pods' own ports, behind those of Services. */}}

{{/* Who may reach metrics and probes. Probes show health alone, and kubelets and load balancers have many addresses. */}}
{{- define "bireme.networkPolicy.ingress" -}}
- ports:
    - {protocol: TCP, port: probes}
{{- if .Values.telemetry.metrics.enabled }}
- ports:
    - {protocol: TCP, port: metrics}
  {{- with .Values.networkPolicy.metricsFrom }}
  from: {{- toYaml . | nindent 4 }}
  {{- end }}
{{- end }}
{{- end }}

{{/* The ports in the URLs of some text, as JSON. */}}
{{- define "bireme.networkPolicy.ports" -}}
{{- $ports := list }}
{{- range regexFindAll `https?://(\[[^\]]*\]|[^][\s"'/:,]+)(:[0-9]+)?` . -1 }}
{{- $given := regexFind ":[0-9]+$" . | trimPrefix ":" }}
{{- $ports = append $ports (default (ternary 443 80 (hasPrefix "https" .)) $given | int) }}
{{- end }}
{{- toJson $ports }}
{{- end }}

{{/* A list of ports, each once, as a NetworkPolicy has them. */}}
{{- define "bireme.networkPolicy.tcp" -}}
{{- $ports := list }}
{{- range . }}{{ $ports = append $ports (int .) }}{{ end }}
{{- range uniq $ports }}
- {protocol: TCP, port: {{ . }}}
{{- end }}
{{- end }}

{{/*
The destinations of both tiers: DNS, object stores, the services that issue credentials for them, and what URLs among the
values name. (list $ "io" text): the text is searched for URLs.
*/}}
{{- define "bireme.networkPolicy.egress" -}}
{{- $root := index . 0 }}{{ $tier := index . 1 }}{{ $policy := $root.Values.networkPolicy }}
{{- $stores := concat (list 443) (include "bireme.networkPolicy.ports" (toJson $root.Values.storage.options) | fromJsonArray) }}
{{- $named := printf "%s %s %s" $root.Values.telemetry.otlp.endpoint (toJson (index $root.Values $tier).extraEnv) (index . 2) }}
{{- $others := include "bireme.networkPolicy.ports" $named | fromJsonArray -}}
- ports:
    - {protocol: UDP, port: 53}
    - {protocol: TCP, port: 53}
- ports: {{- include "bireme.networkPolicy.tcp" $stores | trim | nindent 4 }}
  {{- with $policy.storeTo }}
  to: {{- toYaml . | nindent 4 }}
  {{- end }}
{{- /* The services of AWS, Azure and Google Cloud for pods, at link-local addresses. */}}
- ports: {{- include "bireme.networkPolicy.tcp" (list 80 988) | trim | nindent 4 }}
  to:
    - ipBlock: {cidr: 169.254.0.0/16}
    - ipBlock: {cidr: "fd00:ec2::/32"}
{{- with $others }}
- ports: {{- include "bireme.networkPolicy.tcp" . | trim | nindent 4 }}
{{- end }}
{{- with $policy.extraEgress }}
{{ toYaml . }}
{{- end }}
{{- end }}
