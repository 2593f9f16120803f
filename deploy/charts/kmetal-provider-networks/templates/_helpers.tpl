{{/*
"keep": taking an entry out of the values, or uninstalling, must not cut off tenants whose traffic passes here.
deploy/README.md tells how to remove a provider network that nobody uses any more.
*/}}
{{- define "provider.metadata" -}}
name: {{ .entry.name }}
labels:
  app.kubernetes.io/name: kmetal-provider-networks
  app.kubernetes.io/instance: {{ .root.Release.Name }}
  app.kubernetes.io/part-of: kmetal
  app.kubernetes.io/managed-by: {{ .root.Release.Service }}
annotations:
  helm.sh/resource-policy: keep
{{- end }}
