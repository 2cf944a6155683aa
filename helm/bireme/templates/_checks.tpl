{{/* Checks for values that contradict each other. The schema checks each value by itself. */}}

{{- define "bireme.checks" -}}
{{- include "bireme.checks.names" . }}
{{- include "bireme.checks.io" .Values }}
{{- include "bireme.checks.services" . }}
{{- include "bireme.checks.hold" .Values }}
{{- include "bireme.checks.shares" .Values }}
{{- include "bireme.checks.drives" .Values.io }}
{{- include "bireme.checks.claims" . }}
{{- include "bireme.checks.query" .Values.query }}
{{- include "bireme.checks.telemetry" .Values }}
{{- include "bireme.checks.tls" .Values }}
{{- include "bireme.checks.access" .Values }}
{{- include "bireme.checks.rules" . }}
{{- if and .Values.seccompInstaller.enabled (ne .Values.io.seccomp "Localhost") }}
{{- fail (printf "seccompInstaller.enabled writes a profile that nobody uses, as io.seccomp is %s: set io.seccomp to Localhost" .Values.io.seccomp) }}
{{- end }}
{{- if and .Values.loadtest.enabled (not (hasKey .Values.tables .Values.loadtest.table)) }}
{{- fail (printf "loadtest.table is %q, which tables does not have: name one of them" .Values.loadtest.table) }}
{{- end }}
{{- end }}

{{/* Checks for settings that the chart itself sets. */}}
{{- define "bireme.checks.names" -}}
{{- range $tier, $taken := dict "io" (dict "access" "access.peers" "audit" "access.audit" "peers" "access.peers" "peer_secret" "access.peerSecret" "storage_secrets" "storage.existingSecret" "listen" "listenAddress" "name" "" "drives" "io.drives" "serve" "io.serve" "also_reads" "tables" "storage" "storage.options" "cores" "io.cores" "pin" "io.pinned" "shares" "io.shares" "warm_at_start" "io.warmAtStart" "warm_members" "io.replicas" "hit_ratio_at_start" "io.hitRatioAtStart" "start_max" "io.startMax" "telemetry" "telemetry" "tls" "tls") "query" (dict "access" "access.mode" "peer_secret" "access.peerSecret" "storage_secrets" "storage.existingSecret" "audit" "access.audit" "listen" "listenAddress" "name" "" "tables" "tables" "folders" "folders" "browser_origins" "query.browserOrigins" "io_nodes" "discovery" "io_nodes_from" "discovery" "storage" "storage.options" "telemetry" "telemetry" "tls" "tls" "io_tls" "tls") }}
{{- range $key, $value := (index $.Values $tier).settings }}
{{- if hasKey $taken $key }}
{{- $instead := index $taken $key }}
{{- fail (printf "%s.settings.%s is given by the chart: %s" $tier $key (ternary "leave it out, as it is the pod's name" (printf "set %s instead" $instead) (empty $instead))) }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}

{{- define "bireme.checks.io" -}}
{{- if and (eq .io.autoscaling.type "none") (eq (int .io.replicas) 0) }}
{{- fail "io.replicas is 0, and every row would come from the table: ask for at least 1" }}
{{- end }}
{{- with .io.autoscaling }}
{{- $own := or .readQueue.enabled .missRatio.enabled }}
{{- if and (eq .type "hpa") (not (or $own .metrics)) }}
{{- fail "io.autoscaling.type is hpa, and io.autoscaling.metrics is empty: say what to scale on, or enable readQueue or missRatio" }}
{{- end }}
{{- if and (eq .type "keda") (not (or $own .triggers)) }}
{{- fail "io.autoscaling.type is keda, and io.autoscaling.triggers is empty: say what to scale on, or enable readQueue or missRatio" }}
{{- end }}
{{- if and (eq .type "keda") $own (not .prometheus) }}
{{- fail "io.autoscaling: KEDA asks Prometheus for readQueue and missRatio, and io.autoscaling.prometheus is empty: write it like http://prometheus.monitoring:9090" }}
{{- end }}
{{- if and (eq .type "none") $own }}
{{- fail "io.autoscaling: readQueue or missRatio is enabled, and io.autoscaling.type is none: set it to hpa or keda" }}
{{- end }}
{{- if and $own (not $.telemetry.metrics.enabled) }}
{{- fail "io.autoscaling scales on a metric, and telemetry.metrics.enabled is false" }}
{{- end }}
{{- if and (ne .type "none") (gt (int .minReplicas) (int .maxReplicas)) }}
{{- fail (printf "io.autoscaling.minReplicas (%d) is above maxReplicas (%d)" (int .minReplicas) (int .maxReplicas)) }}
{{- end }}
{{- if and (ne .type "none") (eq $.discovery "static") }}
{{- fail "discovery is static, and io.autoscaling.type changes the number of I/O nodes: set discovery to kubernetes or dns" }}
{{- end }}
{{- end }}
{{- if .io.pinned }}{{ include "bireme.checks.pinned" .io.resources }}{{ end }}
{{- end }}

{{/* Checks I/O nodes of several Services: only Kubernetes has their weights, and certificates name one Service. */}}
{{- define "bireme.checks.services" -}}
{{- with .Values }}
{{- if and (ne .discovery "kubernetes") .ioServices }}
{{- fail (printf "ioServices names more I/O nodes, and discovery is %s: set it to kubernetes" .discovery) }}
{{- end }}
{{- if and (ne .discovery "kubernetes") (ne (toString .io.weight) "1") }}
{{- fail (printf "io.weight is %v, which only Kubernetes tells, and discovery is %s: set it to kubernetes" .io.weight .discovery) }}
{{- end }}
{{- if has (include "bireme.tier" (list $ "io")) .ioServices }}
{{- fail (printf "ioServices names %s, which is this release's own: leave it out" (include "bireme.tier" (list $ "io"))) }}
{{- end }}
{{- if and .ioServices .tls.certManager.enabled }}
{{- fail "ioServices names I/O nodes of another release, and tls.certManager makes certificates of this one's name alone: give all of them a certificate of one name by tls.secrets and tls.ioServerName" }}
{{- end }}
{{- end }}
{{- end }}

{{/* A duration such as 1h30m in whole seconds. */}}
{{- define "bireme.seconds" -}}
{{- $seconds := 0 }}
{{- range regexFindAll "[0-9]+(ms|s|m|h)" . -1 }}
{{- $unit := regexFind "[a-z]+" . }}
{{- $seconds = add $seconds (mul (regexFind "[0-9]+" . | int) (get (dict "ms" 0 "s" 1 "m" 60 "h" 3600) $unit)) }}
{{- end }}
{{- $seconds }}
{{- end }}

{{/* A node that is unready for longer than member_hold loses its chunks to others, and gets no requests any more. */}}
{{- define "bireme.checks.hold" -}}
{{- $hold := default "" .query.settings.member_hold }}
{{- if and (or .io.warmAtStart .io.hitRatioAtStart) $hold (le (include "bireme.seconds" $hold | int) (include "bireme.seconds" .io.startMax | int)) }}
{{- fail (printf "query.settings.member_hold is %s, and a pod may wait %s for its warm and its hits (io.startMax): the others would take a node's chunks over while it waits; make member_hold longer, or leave it out" $hold .io.startMax) }}
{{- end }}
{{- end }}

{{- define "bireme.checks.shares" -}}
{{- range .io.warmAtStart }}
{{- if not (hasKey $.tables .table) }}
{{- fail (printf "io.warmAtStart names %s, which tables does not have: name one of them" .table) }}
{{- end }}
{{- end }}
{{- range $name, $share := .io.shares }}
{{- if not (hasKey $.tables $name) }}
{{- fail (printf "io.shares names %s, which tables does not have: name one of them" $name) }}
{{- end }}
{{- if and $share.pinned (not $share.maximum) }}
{{- fail (printf "io.shares: %s is pinned and has no maximum: say how much of each pod's drives it may take" $name) }}
{{- end }}
{{- if and $share.pinned $share.minimum }}
{{- fail (printf "io.shares: %s is pinned and needs no minimum: leave it out" $name) }}
{{- end }}
{{- end }}
{{- end }}

{{/* The kubelet gives exclusive CPUs only to pods of the class Guaranteed that request whole CPUs. */}}
{{- define "bireme.checks.pinned" -}}
{{- $limits := default (dict) .limits }}{{ $requests := default $limits .requests }}
{{- $cpu := toString (default "" (get $limits "cpu")) }}
{{- if not (regexMatch "^[1-9][0-9]*$" $cpu) }}
{{- fail (printf "io.pinned needs whole CPUs, and io.resources.limits.cpu is %q: write it like 4" $cpu) }}
{{- end }}
{{- range list "cpu" "memory" }}
{{- if not (get $limits .) }}
{{- fail (printf "io.pinned needs io.resources.limits.%s" .) }}
{{- end }}
{{- $request := toString (default (get $limits .) (get $requests .)) }}
{{- if ne $request (toString (get $limits .)) }}
{{- fail (printf "io.pinned needs requests equal to limits, and io.resources.requests.%s is %s where the limit is %s" . $request (toString (get $limits .))) }}
{{- end }}
{{- end }}
{{- end }}

{{- define "bireme.checks.drives" -}}
{{- if not .drives }}
{{- fail "io.drives is empty, and an I/O node needs a drive: name one, such as {name: nvme0, size: 400GiB, hostPath: /mnt/nvme0}" }}
{{- end }}
{{- $io := . }}{{ $names := dict }}
{{- range .drives }}
{{- if hasKey $names .name }}{{ fail (printf "io.drives names %s twice" .name) }}{{ end }}
{{- $_ := set $names .name true }}
{{- if ne (len (pick . "claim" "hostPath" "emptyDir")) 1 }}
{{- fail (printf "io.drives: %s must have exactly one of claim, hostPath and emptyDir" .name) }}
{{- end }}
{{- if and (not .size) (not (dig "claim" "block" false .)) }}
{{- fail (printf "io.drives: %s has no size, which only a raw block device can do without: write it like 400GiB" .name) }}
{{- end }}
{{- if and (hasKey . "hostPath") (ne $io.antiAffinity "hard") }}
{{- fail (printf "io.drives: two pods of one node would share %s: set io.antiAffinity to hard" .hostPath) }}
{{- end }}
{{- end }}
{{- end }}

{{/*
The claims of a StatefulSet can't be changed. The ConfigMap would be changed nevertheless, and pods that restart would not
find their drives. Nothing is checked if the cluster is not asked (`helm template`).
*/}}
{{- define "bireme.checks.claims" -}}
{{- $name := include "bireme.tier" (list . "io") }}
{{- with lookup "apps/v1" "StatefulSet" .Release.Namespace $name }}
{{- $live := include "bireme.claims.shown" (dig "spec" "volumeClaimTemplates" list .) }}
{{- $wanted := include "bireme.claims.shown" (dig "volumeClaimTemplates" list (include "bireme.io.claims" $ | fromYaml)) }}
{{- if ne $live $wanted }}
{{- fail (printf "io.drives asks for the claims [%s], and the StatefulSet %s has [%s], which Kubernetes does not let change: run `kubectl delete statefulset %s -n %s --cascade=orphan`, which leaves its pods running, and upgrade again (docs/operating/kubernetes.md, \"Other drives\")" $wanted $name $live $name $.Release.Namespace) }}
{{- end }}
{{- end }}
{{- end }}

{{- define "bireme.checks.query" -}}
{{- with .autoscaling }}
{{- if .enabled }}
{{- if gt (int .minReplicas) (int .maxReplicas) }}
{{- fail (printf "query.autoscaling.minReplicas (%d) is above maxReplicas (%d)" (int .minReplicas) (int .maxReplicas)) }}
{{- end }}
{{- if not (or .targetCPUUtilization .requestsUnderWay.enabled .metrics) }}
{{- fail "query.autoscaling is enabled with nothing to scale on: set targetCPUUtilization, requestsUnderWay.enabled or metrics" }}
{{- end }}
{{- if and .targetCPUUtilization (not (dig "requests" "cpu" (dig "limits" "cpu" "" $.resources) $.resources)) }}
{{- fail "query.autoscaling.targetCPUUtilization is a share of query.resources.requests.cpu, which is not set" }}
{{- end }}
{{- end }}
{{- end }}
{{- $update := include "bireme.query.rollingUpdate" . | fromYaml }}
{{- if and (eq (toString $update.maxSurge) "0") (eq (toString $update.maxUnavailable) "0") }}
{{- fail "query.rollingUpdate: maxSurge and maxUnavailable are both 0, and nothing could be updated: set one of them to 1" }}
{{- end }}
{{- end }}

{{- define "bireme.checks.telemetry" -}}
{{- with .telemetry }}
{{- if and $.query.autoscaling.enabled $.query.autoscaling.requestsUnderWay.enabled (not .metrics.enabled) }}
{{- fail "query.autoscaling.requestsUnderWay scales on a metric, and telemetry.metrics.enabled is false" }}
{{- end }}
{{- if and (ne .monitor.kind "none") (not .metrics.enabled) }}
{{- fail (printf "telemetry.monitor.kind is %s, and telemetry.metrics.enabled is false: there is no port to scrape" .monitor.kind) }}
{{- end }}
{{- if and (eq .monitor.kind "ServiceMonitor") (ne $.query.service.type "ClusterIP") }}
{{- fail (printf "telemetry.monitor.kind is ServiceMonitor, and query.service.type is %s, which would show metrics to everybody: set telemetry.monitor.kind to PodMonitor" $.query.service.type) }}
{{- end }}
{{- if and .metrics.enabled (eq (int $.query.service.port) 9464) }}
{{- fail "query.service.port is 9464, which is the port of metrics: choose another" }}
{{- end }}
{{- end }}
{{- end }}

{{- define "bireme.checks.tls" -}}
{{- with .tls }}
{{- $given := or .secrets.query .secrets.io .secrets.queryToIo }}
{{- if and (not .enabled) (or $given .certManager.enabled) }}
{{- fail (printf "%s, and tls.enabled is false: set it to true" (ternary "tls.certManager.enabled is true" "tls.secrets names certificates" .certManager.enabled)) }}
{{- end }}
{{- if and $given .certManager.enabled }}
{{- fail "tls.secrets names certificates, and tls.certManager.enabled is true: leave one of the two out" }}
{{- end }}
{{- if and .enabled (not $given) (not .certManager.enabled) }}
{{- fail "tls.enabled is true, and nothing says where certificates are from: name tls.secrets.query and tls.secrets.io, or set tls.certManager.enabled to true" }}
{{- end }}
{{- if and $given (not (and .secrets.query .secrets.io)) }}
{{- fail (printf "tls.secrets.%s is empty: name its Secret; both tiers may have the same" (ternary "io" "query" (empty .secrets.io))) }}
{{- end }}
{{- if and .certManager.enabled .ioServerName }}
{{- fail "tls.ioServerName is for given Secrets: cert-manager's certificates have the name of the service, so leave it out" }}
{{- end }}
{{- $hours := dict }}
{{- range $key := list "duration" "renewBefore" }}{{ $_ := set $hours $key (index $.tls.certManager $key | trimSuffix "h" | int) }}{{ end }}
{{- if ge $hours.renewBefore $hours.duration }}
{{- fail (printf "tls.certManager.renewBefore (%s) is not below duration (%s): certificates would be renewed without end" .certManager.renewBefore .certManager.duration) }}
{{- end }}
{{- end }}
{{- end }}

{{- define "bireme.checks.access" -}}
{{- with .access }}
{{- if not .mode }}
{{- fail "access.mode is not set: say who may read the tables. `policy` lets in the callers that access.policy names (docs/operating/access.md), `open` everybody who reaches the query nodes" }}
{{- end }}
{{- if and (eq .mode "policy") (not (or .policy .existingSecret)) }}
{{- fail "access.mode is policy, and there is no policy: write it in access.policy, or name a Secret in access.existingSecret" }}
{{- end }}
{{- if and .policy .existingSecret }}
{{- fail "access.policy and access.existingSecret both have a policy: leave one out" }}
{{- end }}
{{- if and (eq .mode "open") (or .policy .existingSecret) }}
{{- fail "access.mode is open, so the policy would have no effect: set access.mode to policy, or leave the policy out" }}
{{- end }}
{{- end }}
{{- if and .ioServices (not .access.peerSecret) (not .access.peers) }}
{{- fail "ioServices names I/O nodes of another release, which know another secret: name one Secret in access.peerSecret of both releases; it may be the one that the other release has made (OTHER-bireme-peers)" }}
{{- end }}
{{- if and .access.peers (or (not .tls.enabled) (eq .tls.clientCertificates "none")) }}
{{- fail "access.peers names certificates, and query nodes present none: set tls.enabled, and tls.clientCertificates to io or all" }}
{{- end }}
{{- if and (eq .access.mode "policy") .loadtest.enabled }}
{{- fail "loadtest.enabled: the load test sends no credentials, and access.mode is policy: run it on a release with access.mode open" }}
{{- end }}
{{- end }}

{{- define "bireme.checks.rules" -}}
{{- $alerts := dict }}
{{- range $path, $_ := .Files.Glob "rules/*.yaml" }}
{{- range ($.Files.Get $path | fromYaml).groups }}{{ range .rules }}{{ with .alert }}{{ $_ := set $alerts . true }}{{ end }}{{ end }}{{ end }}
{{- end }}
{{- with .Values.telemetry.rules }}
{{- range .disabled }}
{{- if not (hasKey $alerts .) }}{{ fail (printf "telemetry.rules.disabled: there is no alert %s" .) }}{{ end }}
{{- if hasKey $.Values.telemetry.rules.overrides . }}
{{- fail (printf "telemetry.rules: %s is disabled, and overridden: name it once" .) }}
{{- end }}
{{- end }}
{{- range $alert, $_ := .overrides }}
{{- if not (hasKey $alerts $alert) }}{{ fail (printf "telemetry.rules.overrides: there is no alert %s" $alert) }}{{ end }}
{{- end }}
{{- if and .enabled (not $.Values.telemetry.metrics.enabled) }}
{{- fail "telemetry.rules.enabled is true, and telemetry.metrics.enabled is false: the rules would see nothing but nodes that are down" }}
{{- end }}
{{- end }}
{{- end }}
