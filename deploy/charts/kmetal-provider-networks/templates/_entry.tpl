{{/*
One entry of providerNetworks, checked and complete: everything that Kube-OVN would fill in or rewrite is computed
here, so that the templates only print. Out, as JSON: networks; v4 and gateway (of the Subnet); cidr and gateways (as
the platform file writes them); excludeIps; drops (what may not enter from the segment nor leave to it, as OVN matches).
*/}}
{{- define "entry" -}}
{{- $at := printf "providerNetworks[%s]" .name -}}
{{- if gt (len .name) 12 }}{{ fail (printf "%s: the name is longer than 12 characters, so the bridge br-%s would not fit an interface name" $at .name) }}{{ end -}}
{{- if has .name (list "ovn-cluster" "ovn-default" "join" "external") }}{{ fail (printf "%s: Kube-OVN gives this name a meaning of its own; choose another" $at) }}{{ end -}}
{{- if and .nodeSelector .excludeNodes }}{{ fail (printf "%s: set nodeSelector or excludeNodes, not both" $at) }}{{ end -}}
{{- $networks := (include "pair" (dict "of" "network" "text" .cidr "at" (printf "%s.cidr" $at)) | fromJson).items -}}
{{- $gateways := (include "pair" (dict "of" "address" "text" .gateway "at" (printf "%s.gateway" $at)) | fromJson).items -}}
{{- $v4 := first $networks -}}
{{- $gateway := first $gateways -}}
{{- if ne (int $v4.family) 4 }}{{ fail (printf "%s: cidr %s has no IPv4 network; Kube-OVN 1.16 attaches a VPC only over IPv4" $at .cidr) }}{{ end -}}
{{- if ne (int $gateway.family) 4 }}{{ fail (printf "%s: gateway %s names no IPv4 address" $at .gateway) }}{{ end -}}
{{- range $router := $gateways -}}
  {{- $inside := false -}}
  {{- range $networks }}{{ if and (eq (int .family) (int $router.family)) (hasPrefix .prefix $router.bits) }}{{ $inside = true }}{{ end }}{{ end -}}
  {{- if not $inside }}{{ fail (printf "%s: gateway %s is not in %s" $at $router.text $.cidr) }}{{ end -}}
{{- end -}}
{{- $host := trimPrefix $v4.prefix $gateway.bits -}}
{{- if not (and (contains "0" $host) (contains "1" $host)) }}{{ fail (printf "%s: gateway %s is the first or last address of %s" $at $gateway.text $v4.text) }}{{ end -}}
{{- $cidr := list -}}
{{- range $networks }}{{ $cidr = append $cidr .text }}{{ end -}}
{{- $routers := list -}}
{{- range $gateways }}{{ $routers = append $routers .text }}{{ end -}}
{{- $wire := printf "\"localnet.%s\"" .name -}}
{{- /* Neighbour discovery lives on link-local unicast and multicast; who looks for an address to take has none yet. */ -}}
{{- $to := join ", " (concat (rest $cidr) (list "fe80::/10" "ff02::/16")) -}}
{{- $from := join ", " (concat (rest $cidr) (list "fe80::/10" "::")) -}}
{{- $enters := list (printf "inport == %s && ip4 && ip4.dst != %s" $wire $v4.text) (printf "inport == %s && ip6 && ip6.dst != {%s}" $wire $to) -}}
{{- $leaves := list (printf "outport == %s && ip4 && ip4.src != %s" $wire $v4.text) (printf "outport == %s && ip6 && ip6.src != {%s}" $wire $from) -}}
{{- $excluded := include "entry.excluded" (dict "excludeAddresses" .excludeAddresses "at" (printf "%s.excludeAddresses" $at) "network" $v4 "gateway" $gateway) | fromJsonArray -}}
{{- dict "networks" $networks "v4" $v4.text "gateway" $gateway.text "cidr" (join "," $cidr) "gateways" (join "," $routers) "excludeIps" $excluded "drops" (dict "enters" $enters "leaves" $leaves) | toJson -}}
{{- end }}

{{/* Kube-OVN's own order and form: single addresses and a..b, the gateway among them, nothing twice, sorted as text. */}}
{{- define "entry.excluded" -}}
{{- $at := .at -}}
{{- $network := .network -}}
{{- $ranges := list -}}
{{- range .excludeAddresses -}}
  {{- $text := . -}}
  {{- $ends := list -}}
  {{- range splitList ".." $text }}{{ $ends = append $ends (include "address" (dict "text" . "at" $at) | fromJson) }}{{ end -}}
  {{- $from := first $ends -}}
  {{- $to := last $ends -}}
  {{- if or (gt (len $ends) 2) (gt $from.bits $to.bits) }}{{ fail (printf "%s: %q is neither an address nor a range a..b" $at $text) }}{{ end -}}
  {{- if not (and (hasPrefix $network.prefix $from.bits) (hasPrefix $network.prefix $to.bits)) }}{{ fail (printf "%s: %q is not in %s" $at $text $network.text) }}{{ end -}}
  {{- $written := ternary $from.text (printf "%s..%s" $from.text $to.text) (eq $from.bits $to.bits) -}}
  {{- range $ranges -}}
    {{- if and (le $from.bits .to) (le .from $to.bits) }}{{ fail (printf "%s: %s and %s overlap; write them as one range" $at .text $written) }}{{ end -}}
  {{- end -}}
  {{- $ranges = append $ranges (dict "from" $from.bits "to" $to.bits "text" $written) -}}
{{- end -}}
{{- $covered := false -}}
{{- $written := list -}}
{{- range $ranges -}}
  {{- $written = append $written .text -}}
  {{- if and (le .from $.gateway.bits) (le $.gateway.bits .to) }}{{ $covered = true }}{{ end -}}
{{- end -}}
{{- if not $covered }}{{ $written = append $written .gateway.text }}{{ end -}}
{{- sortAlpha $written | toJson -}}
{{- end }}

{{/* What no entry can see alone: names, interfaces and networks that two of them claim. */}}
{{- define "entries.check" -}}
{{- $seen := list -}}
{{- $default := "" -}}
{{- range $entry := .Values.providerNetworks -}}
  {{- $networks := (include "entry" $entry | fromJson).networks -}}
  {{- range $other := $seen -}}
    {{- if eq $other.entry.name $entry.name }}{{ fail (printf "providerNetworks: the name %s is used twice, and with it the Vlan and the Subnet" $entry.name) }}{{ end -}}
    {{- if and (eq $other.entry.interface $entry.interface) (not (and $other.entry.nodeSelector $entry.nodeSelector)) -}}
      {{- fail (printf "providerNetworks: %s and %s share the interface %s, which fits one bridge only; give each its VLAN sub-interface (such as %s.206, vlanID 0)" $other.entry.name $entry.name $entry.interface $entry.interface) -}}
    {{- end -}}
    {{- range $mine := $networks }}{{ range $theirs := $other.networks -}}
      {{- if and (eq (int $mine.family) (int $theirs.family)) (or (hasPrefix $mine.prefix $theirs.prefix) (hasPrefix $theirs.prefix $mine.prefix)) -}}
        {{- fail (printf "providerNetworks: %s of %s and %s of %s overlap" $theirs.text $other.entry.name $mine.text $entry.name) -}}
      {{- end -}}
    {{- end }}{{ end -}}
  {{- end -}}
  {{- if $entry.default -}}
    {{- if $default }}{{ fail (printf "providerNetworks: %s and %s are both the default" $default $entry.name) }}{{ end -}}
    {{- $default = $entry.name -}}
  {{- end -}}
  {{- $seen = append $seen (dict "entry" $entry "networks" $networks) -}}
{{- end -}}
{{- end }}
