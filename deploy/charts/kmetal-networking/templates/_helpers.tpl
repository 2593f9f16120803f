{{/*
Names are constants: the process is one per cluster (its kinds and the Kube-OVN objects it makes are
cluster-scoped), so a second release must collide instead of running beside the first.
*/}}
{{- define "networking.name" -}}
kmetal-networking
{{- end }}

{{- define "networking.selectorLabels" -}}
app.kubernetes.io/name: {{ include "networking.name" . }}
app.kubernetes.io/component: controller
{{- end }}

{{- define "networking.labels" -}}
{{ include "networking.selectorLabels" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/part-of: kmetal
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end }}

{{/* registry/repository, then @digest when there is one, else :tag. */}}
{{- define "networking.image" -}}
{{- $image := .Values.image -}}
{{- $name := list $image.registry $image.repository | compact | join "/" -}}
{{- if $image.digest -}}
{{ $name }}@{{ $image.digest }}
{{- else -}}
{{ $name }}:{{ $image.tag | default .Chart.AppVersion }}
{{- end -}}
{{- end }}
