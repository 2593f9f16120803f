module kmetal.clastix.io/kit/capsule-0.14

go 1.26.4

require github.com/projectcapsule/capsule v0.14.0
