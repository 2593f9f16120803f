{{/*
Addresses and networks. Kube-OVN rewrites a Subnet whose networks, gateway or excluded addresses are not in Go's
canonical form, sorted and merged, and OVN silently drops an ACL whose network has host bits set. So everything is
checked and written canonically here. An address is turned into its bits, as text: then "inside" is a common prefix
and "smaller" is the order of strings. All of them take a dict and return JSON (fromJson), or fail with `at` in front.
*/}}

{{/* One address. In: text, at. Out: family (4 or 6), text (canonical), bits. */}}
{{- define "address" -}}
{{- $text := .text | trim | lower -}}
{{- $octet := "(25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])" -}}
{{- if regexMatch (printf "^(%s[.]){3}%s$" $octet $octet) $text -}}
  {{- $bits := "" -}}
  {{- range splitList "." $text }}{{ $bits = printf "%s%08b" $bits (atoi .) }}{{ end -}}
  {{- dict "family" 4 "text" $text "bits" $bits | toJson -}}
{{- else -}}
  {{- include "address.v6" (dict "text" $text "at" .at) -}}
{{- end -}}
{{- end }}

{{- define "address.v6" -}}
{{- $wrong := printf "%s: %q is not an IP address" .at .text -}}
{{- $halves := splitList "::" .text -}}
{{- if or (not (contains ":" .text)) (gt (len $halves) 2) }}{{ fail $wrong }}{{ end -}}
{{- $groups := first $halves | splitList ":" | compact -}}
{{- if ne (first $halves) (join ":" $groups) }}{{ fail $wrong }}{{ end -}}
{{- if eq (len $halves) 2 -}}
  {{- $right := last $halves | splitList ":" | compact -}}
  {{- if ne (last $halves) (join ":" $right) }}{{ fail $wrong }}{{ end -}}
  {{- $missing := sub 8 (add (len $groups) (len $right)) | int -}}
  {{- if lt $missing 1 }}{{ fail $wrong }}{{ end -}}
  {{- range until $missing }}{{ $groups = append $groups "0" }}{{ end -}}
  {{- $groups = concat $groups $right -}}
{{- end -}}
{{- if ne (len $groups) 8 }}{{ fail $wrong }}{{ end -}}
{{- $nibble := dict "0" "0000" "1" "0001" "2" "0010" "3" "0011" "4" "0100" "5" "0101" "6" "0110" "7" "0111" "8" "1000" "9" "1001" "a" "1010" "b" "1011" "c" "1100" "d" "1101" "e" "1110" "f" "1111" -}}
{{- $bits := "" -}}
{{- $short := list -}}
{{- range $groups -}}
  {{- if not (regexMatch "^[0-9a-f]{1,4}$" .) }}{{ fail $wrong }}{{ end -}}
  {{- $full := printf "%s%s" (repeat (sub 4 (len .) | int) "0") . -}}
  {{- range splitList "" $full }}{{ $bits = printf "%s%s" $bits (get $nibble .) }}{{ end -}}
  {{- $short = append $short (regexReplaceAll "^0{1,3}" $full "") -}}
{{- end -}}
{{- if hasPrefix (printf "%s%s" (repeat 80 "0") (repeat 16 "1")) $bits }}{{ fail (printf "%s: write %q as an IPv4 address" .at .text) }}{{ end -}}
{{- $text := join ":" $short -}}
{{- /* The first of the longest runs of two or more zero groups becomes "::". */ -}}
{{- $run := "" -}}
{{- range $length := untilStep 8 1 -1 -}}
  {{- if not $run -}}
    {{- $zeros := repeat $length ":0" | trimPrefix ":" -}}
    {{- if regexMatch (printf "(^|:)%s(:|$)" $zeros) $text }}{{ $run = $zeros }}{{ end -}}
  {{- end -}}
{{- end -}}
{{- if $run }}{{ $text = regexSplit (printf "(^|:)%s(:|$)" $run) $text 2 | join "::" }}{{ end -}}
{{- dict "family" 6 "text" $text "bits" $bits | toJson -}}
{{- end }}

{{/* One network. In: text, at. Out: family, text (canonical), prefix (the bits that all its addresses share). */}}
{{- define "network" -}}
{{- $parts := splitList "/" (trim .text) -}}
{{- if ne (len $parts) 2 }}{{ fail (printf "%s: %q is not a network, such as 203.0.113.0/24" .at .text) }}{{ end -}}
{{- $address := include "address" (dict "text" (first $parts) "at" .at) | fromJson -}}
{{- $size := len $address.bits -}}
{{- $length := last $parts | atoi -}}
{{- if or (not (regexMatch "^(0|[1-9][0-9]{0,2})$" (last $parts))) (lt $length 1) (gt $length (sub $size 2 | int)) -}}
  {{- fail (printf "%s: %q must have a prefix length between 1 and %d" .at .text (sub $size 2)) -}}
{{- end -}}
{{- if contains "1" (substr $length $size $address.bits) -}}
  {{- fail (printf "%s: %q has host bits set; name the network itself" .at .text) -}}
{{- end -}}
{{- dict "family" $address.family "text" (printf "%s/%d" $address.text $length) "prefix" (substr 0 $length $address.bits) | toJson -}}
{{- end }}

{{/* "v4", "v6" or "v4,v6". In: of ("address" or "network"), text, at. Out: items, in that order. */}}
{{- define "pair" -}}
{{- $items := list -}}
{{- $of := .of -}}
{{- $at := .at -}}
{{- range splitList "," .text }}{{ $items = append $items (include $of (dict "text" . "at" $at) | fromJson) }}{{ end -}}
{{- if gt (len $items) 2 }}{{ fail (printf "%s: %q is more than one IPv4 and one IPv6 %s" $at .text $of) }}{{ end -}}
{{- if and (eq (len $items) 2) (or (ne (int (first $items).family) 4) (ne (int (last $items).family) 6)) -}}
  {{- fail (printf "%s: write %q as the IPv4 %s, a comma, the IPv6 one" $at .text $of) -}}
{{- end -}}
{{- dict "items" $items | toJson -}}
{{- end }}
