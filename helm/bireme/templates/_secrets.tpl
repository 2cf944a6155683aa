{{/* Secrets that both tiers mount as folders, so that the kubelet updates the files when a Secret changes. */}}

{{/*
The Secret that proves to I/O nodes and query nodes that they belong together: the one of the values, or the chart's own
where certificates don't name the query nodes.
*/}}
{{- define "bireme.peers.secret" -}}
{{- if .Values.access.peerSecret }}{{ .Values.access.peerSecret }}
{{- else if not (include "bireme.tls.peers" .) }}{{ include "bireme.tier" (list . "peers") }}
{{- end }}
{{- end }}

{{- define "bireme.secrets.mounts" -}}
{{- if include "bireme.peers.secret" . }}
- {name: peers, mountPath: /etc/bireme-peers, readOnly: true}
{{- end }}
{{- if .Values.storage.existingSecret }}
- {name: store, mountPath: /etc/bireme-store, readOnly: true}
{{- end }}
{{- end }}

{{- define "bireme.secrets.volumes" -}}
{{- with include "bireme.peers.secret" . }}
- name: peers
  secret: {secretName: {{ . }}, defaultMode: 0440}
{{- end }}
{{- with .Values.storage.existingSecret }}
- name: store
  secret: {secretName: {{ . }}, defaultMode: 0440}
{{- end }}
{{- end }}
