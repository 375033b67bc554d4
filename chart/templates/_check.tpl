{{- /* Fails where an installation could not work. */ -}}
{{- define "pod-affinity.check" -}}
{{- if ne .Release.Namespace "tekton-pod-affinity" }}
{{- fail "pod-affinity must be installed in the namespace tekton-pod-affinity: add --namespace tekton-pod-affinity" }}
{{- end }}
{{- if hasPrefix "ko://" .Values.image }}
{{- fail "this folder is the source of the chart: write a chart with cargo ship chart" }}
{{- end }}
{{- end }}
