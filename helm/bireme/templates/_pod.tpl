{{/* Parts of the pods of both tiers. Each takes (list $ "io"). */}}

{{- define "bireme.pod.security" -}}
{{- $root := index . 0 }}{{ $tier := index . 1 -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
fsGroup: 65532
fsGroupChangePolicy: OnRootMismatch
seccompProfile:
  {{- if eq $tier "query" }}
  type: RuntimeDefault
  {{- else if eq $root.Values.io.seccomp "Localhost" }}
  type: Localhost
  localhostProfile: {{ include "bireme.seccomp.file" $root }}
  {{- else }}
  type: {{ $root.Values.io.seccomp }}
  {{- end }}
{{- end }}

{{- define "bireme.container.security" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end }}

{{/* Time to leave the service and load balancers (preStop), to finish running requests (grace), and 5 s more. */}}
{{- define "bireme.pod.termination" -}}
terminationGracePeriodSeconds: {{ add .Values.preStopSeconds .Values.graceSeconds 5 }}
{{- end }}

{{- define "bireme.container.lifecycle" -}}
{{- with .Values.preStopSeconds -}}
lifecycle:
  preStop: {sleep: {seconds: {{ . }}}}
{{- end }}
{{- end }}

{{/*
Liveness is the health of the whole process. Readiness is the health of its service, which a node withdraws before it
drains. The startup probe allows for a node that recovers a big cache.

Probes have a port of their own, over HTTP: the kubelet's gRPC probes do not support TLS, and a client run in the pod for
each probe would cost more, on the CPUs to which the node's threads are pinned.
*/}}
{{- define "bireme.container.probes" -}}
startupProbe:
  httpGet: {path: /live, port: probes}
  periodSeconds: 1
  failureThreshold: 300
readinessProbe:
  httpGet: {path: /ready, port: probes}
  periodSeconds: 2
  timeoutSeconds: 2
livenessProbe:
  httpGet: {path: /live, port: probes}
  periodSeconds: 10
  timeoutSeconds: 5
  failureThreshold: 6
{{- end }}

{{- define "bireme.container.environment" -}}
{{- $root := index . 0 }}{{ $tier := index . 1 }}{{ $values := index $root.Values $tier }}
{{- $prefix := printf "BIREME_%s" (upper $tier) -}}
env:
  - {name: BIREME_LOG, value: {{ $root.Values.log | quote }}}
  - {name: BIREME_GRACE, value: {{ $root.Values.graceSeconds }}s}
  - {name: {{ $prefix }}_CONFIG, value: /etc/bireme/{{ $tier }}.toml}
  - {name: {{ $prefix }}_LISTEN, value: "{{ $root.Values.listenAddress }}:{{ ternary 7070 7071 (eq $tier "query") }}"}
  - name: {{ $prefix }}_NAME
    valueFrom: {fieldRef: {fieldPath: metadata.name}}
  {{- if and (eq $tier "query") (ne $root.Values.discovery "static") }}
  - name: BIREME_QUERY_IO_NODES_FROM
    value: {{ include "bireme.discovery" $root }}
  {{- end }}
  {{- with $root.Values.telemetry.otlp.endpoint }}
  - {name: OTEL_EXPORTER_OTLP_ENDPOINT, value: {{ quote . }}}
  {{- end }}
  {{- with $values.extraEnv }}{{ toYaml . | nindent 2 }}{{ end }}
{{- with $values.extraEnvFrom }}
envFrom: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- define "bireme.discovery" -}}
{{- if eq .Values.discovery "dns" -}}
dns:{{ include "bireme.io.domain" . }}:7071
{{- else -}}
kubernetes:{{ .Release.Namespace }}/{{ prepend (.Values.ioServices | default list) (include "bireme.tier" (list . "io")) | join "," }}:grpc
{{- end }}
{{- end }}

{{- define "bireme.pod.placement" -}}
{{- $root := index . 0 }}{{ $tier := index . 1 }}{{ $values := index $root.Values $tier }}
{{- $selector := include "bireme.selector" . | fromYaml }}
{{- $term := dict "labelSelector" (dict "matchLabels" $selector) "topologyKey" "kubernetes.io/hostname" }}
{{- $affinity := deepCopy $values.affinity }}
{{- $kinds := dict "hard" "requiredDuringSchedulingIgnoredDuringExecution" "soft" "preferredDuringSchedulingIgnoredDuringExecution" }}
{{- with get $kinds $values.antiAffinity }}
{{- $own := ternary (dict "weight" 100 "podAffinityTerm" $term) $term (eq $values.antiAffinity "soft") }}
{{- $others := get (default dict $affinity.podAntiAffinity) . | default list }}
{{- $_ := mergeOverwrite $affinity (dict "podAntiAffinity" (dict . (prepend $others $own))) }}
{{- end }}
{{- with $affinity }}
affinity: {{- toYaml . | nindent 2 }}
{{- end }}
{{- if ne $root.Values.topologySpread "none" }}
topologySpreadConstraints:
  {{- range list "topology.kubernetes.io/zone" "kubernetes.io/hostname" }}
  - maxSkew: 1
    topologyKey: {{ . }}
    whenUnsatisfiable: {{ $root.Values.topologySpread }}
    labelSelector:
      matchLabels: {{- toYaml $selector | nindent 8 }}
  {{- end }}
{{- end }}
{{- with $values.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $values.tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with $root.Values.imagePullSecrets }}
imagePullSecrets: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/*
The strategy adds a pod before it removes one. With hard anti-affinity there may be no node for another pod, and the
update would wait for ever, so it then removes one first. The values override this, as there may be enough nodes.
*/}}
{{- define "bireme.query.rollingUpdate" -}}
{{- $given := default (dict) .rollingUpdate }}
{{- $hard := eq .antiAffinity "hard" -}}
maxSurge: {{ if hasKey $given "maxSurge" }}{{ $given.maxSurge }}{{ else }}{{ ternary 0 1 $hard }}{{ end }}
maxUnavailable: {{ if hasKey $given "maxUnavailable" }}{{ $given.maxUnavailable }}{{ else }}{{ ternary 1 0 $hard }}{{ end }}
{{- end }}

{{/*
The number of a tier's pods: (list $ "io" "StatefulSet" scaled). With a scaler it is the current number: if the last
release set a number and this one did not, the number would become 1. The number is left out if the cluster is not
asked (`helm template`) or has no such object yet, and if Helm applies on the server's side and the scaler owns the
number: the API server would refuse Helm's.
*/}}
{{- define "bireme.replicas" -}}
{{- $root := index . 0 }}{{ $tier := index . 1 }}
{{- if index . 3 }}
{{- $live := lookup "apps/v1" (index . 2) $root.Release.Namespace (include "bireme.tier" (list $root $tier)) }}
{{- $applied := false }}{{ $scaled := false }}
{{- range dig "metadata" "managedFields" list $live }}
{{- if eq .operation "Apply" }}{{ $applied = true }}{{ end }}
{{- if eq (dig "subresource" "" .) "scale" }}{{ $scaled = true }}{{ end }}
{{- end }}
{{- if not (and $applied $scaled) }}{{ dig "spec" "replicas" "" $live }}{{ end }}
{{- else }}
{{- (index $root.Values $tier).replicas }}
{{- end }}
{{- end }}
