module kmetal.clastix.io/kit/cluster-api

go 1.26.0

require (
	github.com/clastix/cluster-api-control-plane-provider-kamaji v0.20.0
	sigs.k8s.io/cluster-api v1.13.6
)
