{{- /* The installed way of admission, or the way to install. */ -}}
{{- define "pod-affinity.admission" -}}
{{- $group := "admissionregistration.k8s.io/v1" }}
{{- $policies := .Capabilities.APIVersions.Has (printf "%s/MutatingAdmissionPolicy" $group) }}
{{- if ne .Values.admission "auto" }}
{{- .Values.admission }}
{{- else if not (lookup "v1" "Namespace" "" "kube-system") }}
{{- fail "admission is auto, which needs an API server: set admission to policies (Kubernetes 1.36 and newer) or webhook" }}
{{- else if and $policies (lookup $group "MutatingAdmissionPolicy" "" "hold.pipelinerun.pod-affinity.tekton.dev") -}}
policies
{{- else if lookup $group "MutatingWebhookConfiguration" "" "pipelinerun.mutation.webhook.pod-affinity.tekton.dev" -}}
webhook
{{- else }}
{{- ternary "policies" "webhook" $policies }}
{{- end }}
{{- end }}

{{- /* The files of objects/ that are installed. */ -}}
{{- define "pod-affinity.files" -}}
{{- $files := list (ternary "policies" .Values.webhook.certificates (eq (include "pod-affinity.admission" .) "policies")) }}
{{- range $name, $value := dict "monitoring" .Values.monitoring "warm-nodes" .Values.warmNodes "guardrails" .Values.guardrails "reserved-label" .Values.reservedLabel }}
{{- if $value.enabled }}
{{- $files = append $files $name }}
{{- end }}
{{- end }}
{{- $release := toString .Values.releaseOnUninstall }}
{{- if or (eq $release "true") (and (eq $release "auto") (lookup "v1" "Namespace" "" "kube-system")) }}
{{- $files = append $files "release-all" }}
{{- end }}
{{- join " " $files }}
{{- end }}
