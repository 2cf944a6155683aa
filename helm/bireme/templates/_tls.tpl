{{/* Certificates: their Secrets, their names, and their paths in pods. */}}

{{/* The Secret with a tier's certificate: (list $ "io"). */}}
{{- define "bireme.tls.secret" -}}
{{- $tls := (index . 0).Values.tls }}
{{- if $tls.certManager.enabled }}{{ include "bireme.tier" . }}-tls{{ else }}{{ index $tls.secrets (index . 1) }}{{ end }}
{{- end }}

{{/* The DNS names of a tier's service, the longest first: (list $ "io"). */}}
{{- define "bireme.tls.names" -}}
{{- $root := index . 0 }}{{ $name := include "bireme.tier" . }}{{ $namespace := $root.Release.Namespace -}}
- {{ $name }}.{{ $namespace }}.svc.{{ $root.Values.clusterDomain }}
- {{ $name }}.{{ $namespace }}.svc
- {{ $name }}.{{ $namespace }}
- {{ $name }}
{{- if eq (index . 1) "io" }}
{{- /* The name of each pod. */}}
- '*.{{ $name }}.{{ $namespace }}.svc.{{ $root.Values.clusterDomain }}'
- '*.{{ $name }}.{{ $namespace }}.svc'
{{- else }}
{{- with $root.Values.tls.certManager.queryNames }}
{{ toYaml . }}
{{- end }}
{{- end }}
{{- end }}

{{/* The name that query nodes expect in the I/O nodes' certificates, because they connect to addresses. */}}
{{- define "bireme.tls.ioServerName" -}}
{{- default (include "bireme.io.domain" .) .Values.tls.ioServerName }}
{{- end }}

{{- define "bireme.tls.mount" -}}
{{- if .Values.tls.enabled -}}
- {name: tls, mountPath: /tls, readOnly: true}
{{- end }}
{{- end }}

{{/* The volume with a tier's certificate: (list $ "io"). Not in the pods' checksum, because nodes reload certificates. */}}
{{- define "bireme.tls.volume" -}}
{{- if (index . 0).Values.tls.enabled -}}
- name: tls
  secret: {secretName: {{ include "bireme.tls.secret" . }}, defaultMode: 0440}
{{- end }}
{{- end }}

{{/* The names in certificates of the callers that I/O nodes answer; none if they answer everybody who reaches them. */}}
{{- define "bireme.tls.peers" -}}
{{- $tls := .Values.tls }}
{{- if .Values.access.peers }}
{{- toJson .Values.access.peers }}
{{- else if and $tls.enabled $tls.certManager.enabled (ne $tls.clientCertificates "none") }}
{{- toJson (list (include "bireme.tls.names" (list . "query") | fromYamlArray | first)) }}
{{- end }}
{{- end }}

{{/* The TLS sections of a tier's configuration: (list $ "io"). */}}
{{- define "bireme.toml.tls" -}}
{{- $root := index . 0 }}{{ $tier := index . 1 }}
{{- with $root.Values.tls }}
{{- if .enabled }}

[tls]
cert = "/tls/tls.crt"
key = "/tls/tls.key"
{{- if has .clientCertificates (ternary (list "all") (list "io" "all") (eq $tier "query")) }}
client_ca = "/tls/ca.crt"
{{- end }}
{{- if eq $tier "query" }}

[io_tls]
ca = "/tls/ca.crt"
server_name = {{ include "bireme.tls.ioServerName" $root | toJson }}
{{- if ne .clientCertificates "none" }}
cert = "/tls/tls.crt"
key = "/tls/tls.key"
{{- end }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}

{{/* cert-manager's reference to the issuer of both tiers' certificates. */}}
{{- define "bireme.tls.issuer" -}}
{{- with .Values.tls.certManager.issuerRef }}
{{- toYaml . }}
{{- else -}}
name: {{ include "bireme.tier" (list . "ca") }}
kind: Issuer
{{- end }}
{{- end }}
