{{/* The profile's path under the kubelet's folder for profiles. The name changes with the profile's content. */}}
{{- define "bireme.seccomp.file" -}}
{{ printf "bireme/io-uring-%s.json" (.Files.Get "seccomp/io-uring.json" | sha256sum | trunc 8) }}
{{- end }}
