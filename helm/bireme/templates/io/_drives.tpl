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
