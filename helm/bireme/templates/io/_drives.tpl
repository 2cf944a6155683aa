{{/* A drive is a mounted volume with a slab in it, or a raw device. */}}

{{- define "bireme.io.mounts" -}}
{{- range .Values.io.drives }}
{{- if not (dig "claim" "block" false .) }}
- {name: {{ .name }}, mountPath: /drives/{{ .name }}}
{{- end }}
{{- end }}
{{- end }}

{{- define "bireme.io.devices" -}}
{{- $devices := list }}
{{- range .Values.io.drives }}
{{- if dig "claim" "block" false . }}
{{- $devices = append $devices (dict "name" .name "devicePath" (include "bireme.drive.path" .)) }}
{{- end }}
{{- end }}
{{- with $devices -}}
volumeDevices: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- define "bireme.io.volumes" -}}
{{- range .Values.io.drives }}
{{- if hasKey . "hostPath" }}
- name: {{ .name }}
  hostPath: {path: {{ .hostPath }}, type: Directory}
{{- else if hasKey . "emptyDir" }}
- name: {{ .name }}
  emptyDir: {{ toJson .emptyDir }}
{{- end }}
{{- end }}
{{- end }}

{{- define "bireme.io.claims" -}}
{{- $claims := list }}
{{- range .Values.io.drives }}
{{- if hasKey . "claim" }}
{{- $spec := dict "accessModes" (list "ReadWriteOnce") "resources" (dict "requests" (dict "storage" .claim.storage)) }}
{{- $_ := set $spec "volumeMode" (ternary "Block" "Filesystem" (dig "block" false .claim)) }}
{{- with .claim.storageClassName }}{{ $_ := set $spec "storageClassName" . }}{{ end }}
{{- $claims = append $claims (dict "apiVersion" "v1" "kind" "PersistentVolumeClaim" "metadata" (dict "name" .name) "spec" $spec) }}
{{- end }}
{{- end }}
{{- with $claims -}}
volumeClaimTemplates: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* The parts of a StatefulSet's claims that a release can change, as text. Equal sizes have equal texts. */}}
{{- define "bireme.claims.shown" -}}
{{- $shown := list }}
{{- range . }}
{{- $size := include "bireme.gibibytes" .spec.resources.requests.storage }}
{{- $shown = append $shown (printf "%s: %sGi %s %s" .metadata.name $size .spec.volumeMode (default "" .spec.storageClassName) | trim) }}
{{- end }}
{{- join ", " $shown }}
{{- end }}

{{/* A quantity of bytes, such as 400Gi or 400e9, in GiB. */}}
{{- define "bireme.gibibytes" -}}
{{- $bytes := dict "" 1 "m" 1e-3 "k" 1e3 "M" 1e6 "G" 1e9 "T" 1e12 "P" 1e15 "E" 1e18 "Ki" 1024 "Mi" 1048576 "Gi" 1073741824 "Ti" 1099511627776 "Pi" 1125899906842624 "Ei" 1152921504606846976 }}
{{- $text := toString . }}
{{- $number := regexFind "^[0-9.]+(e[+]?[0-9]+)?" $text }}
{{- divf (mulf $number (get $bytes (trimPrefix $number $text))) 1073741824 }}
{{- end }}
