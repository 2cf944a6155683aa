{{/* The selector of a tier's pods, which must not change between releases of the chart: (list $ "io"). */}}
{{- define "bireme.selector" -}}
{{- $root := index . 0 -}}
app.kubernetes.io/name: {{ default $root.Chart.Name $root.Values.nameOverride }}
app.kubernetes.io/instance: {{ $root.Release.Name }}
app.kubernetes.io/component: {{ index . 1 }}
{{- end }}

{{/* An object's name, namespace, labels and annotations: (list $ "io" [suffix [annotations]]). */}}
{{- define "bireme.metadata" -}}
{{- $root := index . 0 }}{{ $suffix := "" }}{{ $annotations := $root.Values.commonAnnotations -}}
{{- if gt (len .) 2 }}{{ $suffix = index . 2 }}{{ end }}
{{- if gt (len .) 3 }}{{ $annotations = merge (dict) (index . 3) $annotations }}{{ end -}}
name: {{ include "bireme.tier" . }}{{ $suffix }}
namespace: {{ $root.Release.Namespace }}
labels:
  helm.sh/chart: {{ include "bireme.chart" $root }}
  {{- include "bireme.selector" . | nindent 2 }}
  app.kubernetes.io/version: {{ $root.Chart.AppVersion | quote }}
  app.kubernetes.io/managed-by: {{ $root.Release.Service }}
  {{- with $root.Values.commonLabels }}{{ toYaml . | nindent 2 }}{{ end }}
{{- with $annotations }}
annotations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* The headless service's metadata, with the nodes' weight: Kubernetes copies its labels to the EndpointSlices. */}}
{{- define "bireme.io.service.metadata" -}}
{{- $metadata := include "bireme.metadata" (list . "io") | fromYaml }}
{{- $weight := include "bireme.toml.scalar" .Values.io.weight }}
{{- if ne $weight "1" }}{{ $_ := set $metadata.labels "bireme.io/weight" $weight }}{{ end }}
{{- toYaml $metadata }}
{{- end }}

{{/* Metadata with the labels by which Prometheus or Grafana selects it: (list $ "metrics" labels [annotations]). */}}
{{- define "bireme.monitoring.metadata" -}}
{{- $annotations := dict }}{{ if gt (len .) 3 }}{{ $annotations = index . 3 }}{{ end }}
{{- $metadata := include "bireme.metadata" (list (index . 0) (index . 1) "" $annotations) | fromYaml }}
{{- $_ := set $metadata "labels" (merge (dict) (index . 2) $metadata.labels) }}
{{- toYaml $metadata }}
{{- end }}

{{/* The metadata of a tier's pods. A change of the tier's own configuration restarts the tier. */}}
{{- define "bireme.pod.metadata" -}}
{{- $root := index . 0 }}{{ $tier := index . 1 }}{{ $values := index $root.Values $tier -}}
labels:
  {{- include "bireme.selector" . | nindent 2 }}
  {{- with $root.Values.commonLabels }}{{ toYaml . | nindent 2 }}{{ end }}
  {{- with $values.podLabels }}{{ toYaml . | nindent 2 }}{{ end }}
annotations:
  checksum/configuration: {{ include (printf "bireme.%s.configuration" $tier) $root | sha256sum }}
  {{- with $root.Values.commonAnnotations }}{{ toYaml . | nindent 2 }}{{ end }}
  {{- with $values.podAnnotations }}{{ toYaml . | nindent 2 }}{{ end }}
{{- end }}
