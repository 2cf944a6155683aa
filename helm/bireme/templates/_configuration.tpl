{{/*
A scalar in TOML. Helm reads every number as a float; integers are written without a fraction. A JSON string is also a
TOML string.
*/}}
{{- define "bireme.toml.scalar" -}}
{{- if kindIs "string" . }}{{ toJson . }}
{{- else if and (kindIs "float64" .) (eq (floor .) .) }}{{ int64 . }}
{{- else if kindIs "slice" . }}{{ toJson . }}
{{- else }}{{ . }}
{{- end }}
{{- end }}

{{/* `key = value` for the scalars of a map, then its maps as sections. */}}
{{- define "bireme.toml.settings" -}}
{{- range $key, $value := . }}
{{- if not (kindIs "map" $value) }}
{{ $key }} = {{ include "bireme.toml.scalar" $value }}
{{- end }}
{{- end }}
{{- range $key, $value := . }}
{{- if kindIs "map" $value }}

[{{ $key }}]
{{- include "bireme.toml.settings" $value }}
{{- end }}
{{- end }}
{{- end }}

{{/* The files that both tiers have. They come first, before the sections. */}}
{{- define "bireme.toml.both" -}}
{{- if .Values.access.audit }}
audit = "/dev/stdout"
{{- end }}
{{- if include "bireme.peers.secret" . }}
peer_secret = "/etc/bireme-peers/secret"
{{- end }}
{{- if .Values.storage.existingSecret }}
storage_secrets = "/etc/bireme-store"
{{- end }}
{{- end }}

{{- define "bireme.toml.storage" -}}
{{- with .Values.storage.options }}

[storage]
{{- range $key, $value := . }}
{{ $key }} = {{ if kindIs "string" $value }}{{ toJson $value }}{{ else }}{{ include "bireme.toml.scalar" $value | toJson }}{{ end }}
{{- end }}
{{- end }}
{{- end }}

{{/* The telemetry section of both tiers' configurations. Environment variables override the file. */}}
{{- define "bireme.toml.telemetry" -}}
{{- $root := . }}
{{- with .Values.telemetry }}

[telemetry]
{{- if .metrics.enabled }}
metrics_listen = "{{ $root.Values.listenAddress }}:9464"
{{- end }}
probes_listen = "{{ $root.Values.listenAddress }}:9465"
trace_ratio = {{ include "bireme.toml.scalar" .traces.ratio }}
trace_slow = {{ toJson .traces.slow }}
log_format = {{ toJson $root.Values.logFormat }}
{{- end }}
{{- end }}

{{- define "bireme.query.configuration" -}}
access = {{ ternary "open" "/etc/bireme-access/access.toml" (eq .Values.access.mode "open") | toJson }}
{{- include "bireme.toml.both" . }}
{{- if and (or .Values.io.warmAtStart .Values.io.hitRatioAtStart) (not (hasKey .Values.query.settings "member_hold")) }}
member_hold = "{{ add (include "bireme.seconds" .Values.io.startMax) 120 }}s"
{{- end }}
{{- with .Values.query.browserOrigins }}
browser_origins = {{ toJson . }}
{{- end }}
{{- with .Values.folders }}
folders = {{ toJson . }}
{{- end }}
{{- include "bireme.toml.settings" .Values.query.settings }}
{{- range $name, $table := .Values.tables }}

[tables.{{ toJson $name }}]
{{- include "bireme.toml.settings" $table }}
{{- end }}
{{- if eq .Values.discovery "static" }}
{{- range $number := until (int .Values.io.replicas) }}
{{- $pod := printf "%s-%d" (include "bireme.tier" (list $ "io")) $number }}

[[io_nodes]]
name = "{{ $pod }}"
endpoint = "{{ ternary "https" "http" $.Values.tls.enabled }}://{{ $pod }}.{{ include "bireme.io.domain" $ }}:7071"
{{- end }}
{{- end }}
{{- include "bireme.toml.tls" (list . "query") }}
{{- include "bireme.toml.telemetry" . }}
{{- include "bireme.toml.storage" . }}
{{- end }}

{{/* The path of a drive's slab in the pod: a file on its volume, or the raw device. */}}
{{- define "bireme.drive.path" -}}
{{- if dig "claim" "block" false . }}/dev/bireme/{{ .name }}{{ else }}/drives/{{ .name }}/slab{{ end }}
{{- end }}

{{/*
The pods among which each finds the chunks to warm. With a scaler these are as many as there may be: what a pod owns among
these, it also owns among fewer.
*/}}
{{- define "bireme.io.members" -}}
{{- $replicas := int .Values.io.replicas }}
{{- if ne .Values.io.autoscaling.type "none" }}{{ $replicas = int .Values.io.autoscaling.maxReplicas }}{{ end }}
{{- $members := list }}
{{- range $number := until $replicas }}
{{- $members = append $members (printf "%s-%d" (include "bireme.tier" (list $ "io")) $number) }}
{{- end }}
{{- toJson $members }}
{{- end }}

{{- define "bireme.io.configuration" -}}
{{- $cores := .Values.io.cores }}
{{- if .Values.io.pinned }}{{ $cores = .Values.io.resources.limits.cpu }}{{ end }}
cores = {{ int $cores }}
pin = {{ .Values.io.pinned }}
{{- with include "bireme.tls.peers" . }}
peers = {{ . }}
{{- else }}
{{- if .Values.loadtest.enabled }}
{{- /* The load test asks I/O nodes too, and has no proof of the secret. */}}
access = "open"
{{- end }}
{{- end }}
{{- include "bireme.toml.both" . }}
{{- $serve := list }}
{{- range $table := .Values.tables }}
{{- $serve = append $serve (trimSuffix "/" $table.uri) }}
{{- end }}
{{- range $folder := .Values.folders }}
{{- $serve = append $serve (printf "%s/" (trimSuffix "/" $folder)) }}
{{- end }}
serve = {{ toJson (concat $serve .Values.io.serve | uniq) }}
{{- if .Values.io.hitRatioAtStart }}
hit_ratio_at_start = {{ include "bireme.toml.scalar" .Values.io.hitRatioAtStart }}
{{- end }}
{{- if or .Values.io.warmAtStart .Values.io.hitRatioAtStart }}
start_max = {{ toJson .Values.io.startMax }}
{{- end }}
{{- include "bireme.toml.settings" .Values.io.settings }}
{{- range $table := .Values.tables }}
{{- with $table.also_reads }}

[[also_reads]]
uri = {{ toJson $table.uri }}
prefixes = {{ toJson . }}
{{- end }}
{{- end }}
{{- range .Values.io.drives }}

[[drives]]
path = "{{ include "bireme.drive.path" . }}"
{{- with .size }}
size = {{ toJson . }}
{{- end }}
{{- end }}
{{- range .Values.io.warmAtStart }}
{{- $table := index $.Values.tables .table }}

[[warm_at_start]]
uri = {{ toJson $table.uri }}
{{- with $table.version }}
version = {{ int64 . }}
{{- end }}
{{- with .columns }}
columns = {{ toJson . }}
{{- end }}
{{- end }}
{{- range $name, $share := .Values.io.shares }}

[[shares]]
uri = {{ toJson (index $.Values.tables $name).uri }}
{{- include "bireme.toml.settings" $share }}
{{- end }}
{{- include "bireme.toml.tls" (list . "io") }}
{{- include "bireme.toml.telemetry" . }}
{{- include "bireme.toml.storage" . }}
{{- end }}
