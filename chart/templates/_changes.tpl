{{- /* Changes of an object by the values. Each template changes `.object` and prints nothing. */ -}}

{{- define "pod-affinity.workload" }}
{{- $component := index .object.metadata.labels "app.kubernetes.io/component" }}
{{- $values := get (dict "controller" .Values.controller "webhook" .Values.webhook "warm-node" .Values.warmNodes) $component }}
{{- $place := ternary .Values.warmNodes .Values (eq $component "warm-node") }}
{{- $pod := .object.spec.template.spec }}
{{- $container := first $pod.containers }}
{{- if eq .object.kind "Deployment" }}
{{- $_ := set .object.spec "replicas" $values.replicas }}
{{- $_ := mergeOverwrite $container.resources $values.resources }}
{{- end }}
{{- $_ := mergeOverwrite $pod.nodeSelector $place.nodeSelector }}
{{- with $place.tolerations }}
{{- $_ := set $pod "tolerations" . }}
{{- end }}
{{- with $place.priorityClassName }}
{{- $_ := set $pod "priorityClassName" . }}
{{- end }}
{{- with .Values.imagePullSecrets }}
{{- $_ := set $pod "imagePullSecrets" . }}
{{- end }}
{{- if and (eq $component "webhook") $values.hostNetwork }}
{{- $_ := set $pod "hostNetwork" true }}
{{- /* A node has each port once, so a new pod may need the node of an old one. */ -}}
{{- $_ := set .object.spec.strategy "rollingUpdate" (dict "maxSurge" 0 "maxUnavailable" 1) }}
{{- $ports := dict "https-webhook" $values.port "http-metrics" $values.metricsPort }}
{{- range $container.ports }}
{{- $_ := set . "containerPort" (get $ports .name) }}
{{- end }}
{{- $listen := dict "name" "POD_AFFINITY_LISTEN" "value" (printf "[::]:%v" $values.port) }}
{{- $admin := dict "name" "POD_AFFINITY_ADMIN_LISTEN" "value" (printf "[::]:%v" $values.metricsPort) }}
{{- $_ := set $container "env" (append (append $container.env $listen) $admin) }}
{{- end }}
{{- end }}

{{- define "pod-affinity.configmap" }}
{{- $name := .object.metadata.name }}
{{- $all := dict "config-pod-affinity" .Values.config "config-guardrails" .Values.guardrails.config }}
{{- $_ := set $all "config-reserved-label" .Values.reservedLabel.config }}
{{- range $key, $value := get $all $name | default dict }}
{{- if kindIs "slice" $value }}
{{- $value = join "\n" $value }}
{{- else if kindIs "float64" $value }}
{{- /* The number of a file of values, which toString would write as 1e+06. */ -}}
{{- $value = int64 $value }}
{{- end }}
{{- $_ := set $.object.data $key (toString $value) }}
{{- end }}
{{- end }}

{{- define "pod-affinity.webhooks" }}
{{- $values := .Values.webhook }}
{{- range $webhook := .object.webhooks }}
{{- if $values.failOpen }}
{{- $_ := set $webhook "failurePolicy" "Ignore" }}
{{- end }}
{{- if eq $values.certificates "external" }}
{{- with $values.caBundle }}
{{- $_ := set $webhook.clientConfig "caBundle" . }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}
