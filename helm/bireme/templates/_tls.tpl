{{/* Certificates: their Secrets, their names, and their paths in pods. */}}

{{/*
The Secret with a certificate: (list $ "io") and (list $ "query") for a tier's own, (list $ "query-io") for the one that
query nodes present to I/O nodes.
*/}}
{{- define "bireme.tls.secret" -}}
{{- $tls := (index . 0).Values.tls }}{{ $of := index . 1 }}
{{- if $tls.certManager.enabled }}{{ include "bireme.tier" . }}-tls
{{- else if eq $of "query-io" }}{{ default $tls.secrets.query $tls.secrets.queryToIo }}
{{- else }}{{ index $tls.secrets $of }}
{{- end }}
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

{{/* The folders with a tier's certificates: (list $ "io"). */}}
{{- define "bireme.tls.mounts" -}}
{{- if (index . 0).Values.tls.enabled -}}
- {name: tls, mountPath: /tls, readOnly: true}
{{- if eq (index . 1) "query" }}
- {name: io-tls, mountPath: /io-tls, readOnly: true}
{{- end }}
{{- end }}
{{- end }}

{{/* The volumes of these folders: (list $ "io"). Not in the pods' checksum, because nodes reload certificates. */}}
{{- define "bireme.tls.volumes" -}}
{{- $root := index . 0 }}
{{- if $root.Values.tls.enabled -}}
- name: tls
  secret: {secretName: {{ include "bireme.tls.secret" . }}, defaultMode: 0440}
{{- if eq (index . 1) "query" }}
- name: io-tls
  secret: {secretName: {{ include "bireme.tls.secret" (list $root "query-io") }}, defaultMode: 0440}
{{- end }}
{{- end }}
{{- end }}

{{/*
The names in certificates of the callers that I/O nodes answer; none if they know their callers by a secret, or answer
everybody (`loadtest.enabled`).
*/}}
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
{{- /* With a policy, query nodes accept callers without a certificate too. */}}
{{- $asked := or (eq $tier "io") (eq .clientCertificates "all") (eq $root.Values.access.mode "policy") }}
{{- if and $asked (ne .clientCertificates "none") }}
client_ca = "/tls/ca.crt"
{{- end }}
{{- if eq $tier "query" }}

[io_tls]
ca = "/io-tls/ca.crt"
server_name = {{ include "bireme.tls.ioServerName" $root | toJson }}
{{- if ne .clientCertificates "none" }}
cert = "/io-tls/tls.crt"
key = "/io-tls/tls.key"
{{- end }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}

{{/*
cert-manager's reference to the issuer of certificates for callers (list $ "callers"), or for the connections between the
tiers (list $ "tiers"). Without one in the values, it is an authority of the release's own.
*/}}
{{- define "bireme.tls.issuer" -}}
{{- $root := index . 0 }}{{ $callers := eq (index . 1) "callers" }}
{{- with $root.Values.tls.certManager }}
{{- with ternary .issuerRef .tiersIssuerRef $callers }}
{{- toYaml . }}
{{- else -}}
name: {{ include "bireme.tls.authority" (list $root $callers) }}
kind: Issuer
{{- end }}
{{- end }}
{{- end }}

{{/* The name of the release's own authority for callers (list $ true) or for the tiers (list $ false). */}}
{{- define "bireme.tls.authority" -}}
{{ include "bireme.tier" (list (index . 0) (ternary "ca" "tiers-ca" (index . 1))) }}
{{- end }}
