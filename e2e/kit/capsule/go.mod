module kmetal.clastix.io/kit/capsule

go 1.26.4

require github.com/projectcapsule/capsule v0.13.11
