module github.com/muster-io/muster/agent-service

go 1.26.0
