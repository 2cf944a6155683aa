{{- define "bireme.chart" -}}
{{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{- end }}

{{/* The release's name, cut so that the longest suffix and a pod's number fit in a DNS label (63 characters). */}}
{{- define "bireme.fullname" -}}
{{- $name := default .Chart.Name .Values.nameOverride }}
{{- $full := ternary .Release.Name (printf "%s-%s" .Release.Name $name) (contains $name .Release.Name) }}
{{- default $full .Values.fullnameOverride | trunc 44 | trimSuffix "-" }}
{{- end }}

{{/* A tier's name: (list $ "io"). */}}
{{- define "bireme.tier" -}}
{{ printf "%s-%s" (include "bireme.fullname" (index . 0)) (index . 1) }}
{{- end }}

{{- define "bireme.serviceAccount" -}}
{{- $root := index . 0 }}{{ $tier := index . 1 }}
{{- default (include "bireme.tier" .) (index $root.Values $tier).serviceAccount.name }}
{{- end }}

{{- define "bireme.image" -}}
{{- with .Values.image }}
{{- if .digest }}{{ .repository }}@{{ .digest }}{{ else }}{{ .repository }}:{{ default $.Chart.AppVersion .tag }}{{ end }}
{{- end }}
{{- end }}

{{/* The DNS name of the headless service. */}}
{{- define "bireme.io.domain" -}}
{{ include "bireme.tier" (list . "io") }}.{{ .Release.Namespace }}.svc.{{ .Values.clusterDomain }}
{{- end }}

{{- define "bireme.query.endpoint" -}}
{{ ternary "https" "http" .Values.tls.enabled }}://{{ include "bireme.tier" (list . "query") }}.{{ .Release.Namespace }}.svc.{{ .Values.clusterDomain }}:{{ .Values.query.service.port }}
{{- end }}
