{{/* The name of a tier's objects. */}}
{{- define "watch-fanout.name" -}}
{{ .root.Release.Name }}{{ if eq .tier "relay" }}-relay{{ end }}
{{- end }}

{{- define "watch-fanout.selector" -}}
app.kubernetes.io/name: watch-fanout
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .tier }}
{{- end }}

{{- define "watch-fanout.labels" -}}
{{ include "watch-fanout.selector" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
{{- end }}

{{/* watch-fanout.yaml of a tier: what the values imply, and the keys of `config` over it. */}}
{{- define "watch-fanout.config" -}}
{{- $values := .root.Values }}
{{- $config := dict "listen" "0.0.0.0:50051" "admin" "0.0.0.0:8080" "log-format" "json" "audit-log" "-" }}
{{- $_ := set $config "policy" "/etc/watch-fanout-policy/policy.yaml" }}
{{- if $values.tls.secretName }}
{{- $_ := set $config "tls-cert" "/etc/watch-fanout-tls/tls.crt" }}
{{- $_ := set $config "tls-key" "/etc/watch-fanout-tls/tls.key" }}
{{- if ne $values.tls.clientAuth "off" }}
{{- $_ := set $config "tls-client-ca" "/etc/watch-fanout-tls/ca.crt" }}
{{- $_ := set $config "tls-client-auth" $values.tls.clientAuth }}
{{- end }}
{{- end }}
{{- if $values.adminTokens.secretName }}
{{- $_ := required "adminTokens needs tls.secretName" $values.tls.secretName }}
{{- $_ := set $config "admin-tls-cert" "/etc/watch-fanout-tls/tls.crt" }}
{{- $_ := set $config "admin-tls-key" "/etc/watch-fanout-tls/tls.key" }}
{{- $_ := set $config "admin-token-file" "/etc/watch-fanout-admin/tokens" }}
{{- end }}
{{- if not (and $values.tls.secretName $values.adminTokens.secretName) }}
{{- $_ := set $config "insecure" true }}
{{- end }}
{{- if $values.serviceAccountTokens.enabled }}
{{- $_ := set $config "jwt-issuer" $values.serviceAccountTokens.issuer }}
{{- $_ := set $config "jwt-audience" $values.serviceAccountTokens.audience }}
{{- $_ := set $config "jwt-jwks" (printf "%s/openid/v1/jwks" $values.serviceAccountTokens.issuer) }}
{{- end }}
{{- if eq .tier "relay" }}
{{- $_ := set $config "upstream" (list (printf "%s.%s.svc:50051" .root.Release.Name .root.Release.Namespace)) }}
{{- if $values.tls.secretName }}
{{- $_ := set $config "upstream-tls-ca" "/etc/watch-fanout-tls/ca.crt" }}
{{- if ne $values.tls.clientAuth "off" }}
{{- $_ := set $config "upstream-tls-cert" "/etc/watch-fanout-tls/tls.crt" }}
{{- $_ := set $config "upstream-tls-key" "/etc/watch-fanout-tls/tls.key" }}
{{- end }}
{{- end }}
{{- if $values.serviceAccountTokens.enabled }}
{{- $_ := set $config "upstream-token-file" "/etc/watch-fanout-upstream/token" }}
{{- end }}
{{- toYaml (mergeOverwrite $config (deepCopy $values.relays.config)) }}
{{- else }}
{{- if $values.etcdTls.secretName }}
{{- $_ := set $config "etcd-ca" "/etc/watch-fanout-etcd/ca.crt" }}
{{- $_ := set $config "etcd-cert" "/etc/watch-fanout-etcd/tls.crt" }}
{{- $_ := set $config "etcd-key" "/etc/watch-fanout-etcd/tls.key" }}
{{- end }}
{{- $own := deepCopy $values.config }}
{{- if $values.data.enabled }}
{{- $own = omit $own "etcd" }}
{{- $_ := set $config "data" "/var/lib/watch-fanout/data/store.db" }}
{{- end }}
{{- toYaml (mergeOverwrite $config $own) }}
{{- end }}
{{- end }}

{{/* policy.yaml of a tier. The roots' also lets the relays read and write everything: what their clients may do, the
     relays decide. */}}
{{- define "watch-fanout.policy" -}}
{{- $policy := deepCopy .root.Values.policy }}
{{- if and (eq .tier "root") .root.Values.relays.enabled }}
{{- $rule := dict "resources" (list "*") "prefixes" (list "*") "verbs" (list "*") }}
{{- $role := dict "name" "watch-fanout-relay" "rules" (list $rule) }}
{{- $account := printf "system:serviceaccount:%s:%s-relay" .root.Release.Namespace .root.Release.Name }}
{{- $subjects := list }}
{{- if .root.Values.serviceAccountTokens.enabled }}{{ $subjects = append $subjects $account }}{{ end }}
{{- with .root.Values.relays.certificateName }}{{ $subjects = append $subjects . }}{{ end }}
{{- $binding := dict "role" "watch-fanout-relay" "subjects" $subjects }}
{{- $_ := set $policy "roles" (append $policy.roles $role) }}
{{- $_ := set $policy "bindings" (append $policy.bindings $binding) }}
{{- end }}
{{- toYaml $policy }}
{{- end }}
