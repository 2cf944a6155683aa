{{/* The metrics by which the I/O tier is scaled, as metrics of an HPA and as triggers of KEDA. */}}

{{- define "bireme.io.scaling.metrics" -}}
{{- with .Values.io.autoscaling }}
{{- if .readQueue.enabled }}
- type: Pods
  pods:
    metric: {name: bireme_io_ring_queue}
    target: {type: AverageValue, averageValue: {{ .readQueue.target | quote }}}
{{- end }}
{{- if .missRatio.enabled }}
- type: Pods
  pods:
    metric: {name: "instance:bireme_io_rows_from_table:ratio_rate5m"}
    target: {type: AverageValue, averageValue: {{ printf "%dm" (mul 10 .missRatio.target) }}}
{{- end }}
{{- with .metrics }}
{{ toYaml . }}
{{- end }}
{{- end }}
{{- end }}

{{- define "bireme.io.scaling.triggers" -}}
{{- $pods := printf "{namespace=%q, instance=~%q}" .Release.Namespace (printf "%s-[0-9]+" (include "bireme.tier" (list . "io"))) }}
{{- with .Values.io.autoscaling }}
{{- if .readQueue.enabled }}
- type: prometheus
  metricType: AverageValue
  metadata:
    serverAddress: {{ .prometheus }}
    query: {{ printf "sum(bireme_io_ring_queue%s)" $pods | toJson }}
    threshold: {{ .readQueue.target | quote }}
{{- end }}
{{- if .missRatio.enabled }}
- type: prometheus
  metricType: Value
  metadata:
    serverAddress: {{ .prometheus }}
    {{- /* Without requests for rows there is no ratio. */}}
    query: {{ printf "sum(rate(bireme_io_rows_from_table_total%s[5m])) / sum(rate(bireme_io_rows_total%s[5m])) > 0 or vector(0)" $pods $pods | toJson }}
    threshold: {{ divf .missRatio.target 100 | quote }}
{{- end }}
{{- with .triggers }}
{{ toYaml . }}
{{- end }}
{{- end }}
{{- end }}
