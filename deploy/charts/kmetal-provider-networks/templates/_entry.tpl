{{/*
One entry of providerNetworks, checked and complete: everything that Kube-OVN would fill in or rewrite is computed
here, so that the templates only print. Out, as JSON: cidr, gateway, protocol, excludeIps, drops (what may not
enter from the segment, as OVN matches), networks.
*/}}
{{- define "entry" -}}
{{- $at := printf "providerNetworks[%s]" .name -}}
{{- if gt (len .name) 12 }}{{ fail (printf "%s: the name is longer than 12 characters, so the bridge br-%s would not fit an interface name" $at .name) }}{{ end -}}
{{- if has .name (list "ovn-cluster" "ovn-default" "join" "external") }}{{ fail (printf "%s: Kube-OVN gives this name a meaning of its own; choose another" $at) }}{{ end -}}
{{- if and .nodeSelector .excludeNodes }}{{ fail (printf "%s: set nodeSelector or excludeNodes, not both" $at) }}{{ end -}}
{{- $networks := (include "pair" (dict "of" "network" "text" .cidr "at" (printf "%s.cidr" $at)) | fromJson).items -}}
{{- $gateways := (include "pair" (dict "of" "address" "text" .gateway "at" (printf "%s.gateway" $at)) | fromJson).items -}}
{{- if ne (len $networks) (len $gateways) }}{{ fail (printf "%s: cidr %s wants one gateway for each network, not %s" $at .cidr .gateway) }}{{ end -}}
{{- $texts := list -}}
{{- $hops := list -}}
{{- $drops := list -}}
{{- $inport := printf "inport == \"localnet.%s\"" .name -}}
{{- range $i, $network := $networks -}}
  {{- $gateway := index $gateways $i -}}
  {{- $host := trimPrefix $network.prefix $gateway.bits -}}
  {{- if or (ne (int $network.family) (int $gateway.family)) (not (hasPrefix $network.prefix $gateway.bits)) }}{{ fail (printf "%s: gateway %s is not in %s" $at $gateway.text $network.text) }}{{ end -}}
  {{- if not (and (contains "0" $host) (contains "1" $host)) }}{{ fail (printf "%s: gateway %s is the first or last address of %s" $at $gateway.text $network.text) }}{{ end -}}
  {{- $texts = append $texts $network.text -}}
  {{- $hops = append $hops $gateway.text -}}
  {{- $match := printf "%s && ip4 && ip4.dst != %s" $inport $network.text -}}
  {{- /* Neighbour discovery needs link-local unicast and multicast. */ -}}
  {{- if eq (int $network.family) 6 }}{{ $match = printf "%s && ip6 && ip6.dst != {%s, fe80::/10, ff02::/16}" $inport $network.text }}{{ end -}}
  {{- $drops = append $drops $match -}}
{{- end -}}
{{- $protocol := "Dual" -}}
{{- if eq (len $networks) 1 -}}
  {{- $v4 := eq (int (first $networks).family) 4 -}}
  {{- $protocol = ternary "IPv4" "IPv6" $v4 -}}
  {{- /* The other family has no address here, yet a VPC may use it inside, and its router would let it in. */ -}}
  {{- $drops = append $drops (printf "%s && %s" $inport (ternary "ip6" "ip4" $v4)) -}}
{{- end -}}
{{- $excluded := include "entry.excluded" (dict "entry" . "at" (printf "%s.excludeAddresses" $at) "networks" $networks "gateways" $gateways) | fromJsonArray -}}
{{- dict "cidr" (join "," $texts) "gateway" (join "," $hops) "protocol" $protocol "excludeIps" $excluded "drops" $drops "networks" $networks | toJson -}}
{{- end }}

{{/* Kube-OVN's own order and form: single addresses and a..b, the gateways among them, nothing twice, sorted as text. */}}
{{- define "entry.excluded" -}}
{{- $at := .at -}}
{{- $networks := .networks -}}
{{- $ranges := list -}}
{{- range .entry.excludeAddresses -}}
  {{- $text := . -}}
  {{- $ends := list -}}
  {{- range splitList ".." $text }}{{ $ends = append $ends (include "address" (dict "text" . "at" $at) | fromJson) }}{{ end -}}
  {{- $from := first $ends -}}
  {{- $to := last $ends -}}
  {{- if or (gt (len $ends) 2) (ne (int $from.family) (int $to.family)) (gt $from.bits $to.bits) }}{{ fail (printf "%s: %q is neither an address nor a range a..b" $at $text) }}{{ end -}}
  {{- $inside := false -}}
  {{- range $networks }}{{ if and (eq (int .family) (int $from.family)) (hasPrefix .prefix $from.bits) (hasPrefix .prefix $to.bits) }}{{ $inside = true }}{{ end }}{{ end -}}
  {{- if not $inside }}{{ fail (printf "%s: %q is not in %s" $at $text $.entry.cidr) }}{{ end -}}
  {{- $written := ternary $from.text (printf "%s..%s" $from.text $to.text) (eq $from.bits $to.bits) -}}
  {{- range $ranges -}}
    {{- if and (eq (int .family) (int $from.family)) (le $from.bits .to) (le .from $to.bits) }}{{ fail (printf "%s: %s and %s overlap; write them as one range" $at .text $written) }}{{ end -}}
  {{- end -}}
  {{- $ranges = append $ranges (dict "family" $from.family "from" $from.bits "to" $to.bits "text" $written) -}}
{{- end -}}
{{- range $gateway := .gateways -}}
  {{- $covered := false -}}
  {{- range $ranges }}{{ if and (eq (int .family) (int $gateway.family)) (le .from $gateway.bits) (le $gateway.bits .to) }}{{ $covered = true }}{{ end }}{{ end -}}
  {{- if not $covered }}{{ $ranges = append $ranges (dict "family" $gateway.family "from" $gateway.bits "to" $gateway.bits "text" $gateway.text) }}{{ end -}}
{{- end -}}
{{- $written := list -}}
{{- range $ranges }}{{ $written = append $written .text }}{{ end -}}
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
