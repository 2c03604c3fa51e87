// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

// Package logging makes the logs of all programs alike: JSON from the first line to the last, on standard error.
package logging

import (
	"fmt"

	"github.com/go-logr/zapr"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
)

// New returns a logger for a level, such as debug, info or error, and gives it to the libraries of the Kubernetes API, klog among them. Times are in RFC 3339. An
// error, such as an API server that is away, has no stack trace: a trace stands where the program itself is wrong.
func New(level string) (*zap.Logger, error) {
	parsed, err := zapcore.ParseLevel(level)
	if err != nil {
		return nil, fmt.Errorf("reading the log level: %w", err)
	}
	logger, err := config(parsed).Build(zap.AddStacktrace(zapcore.DPanicLevel))
	if err != nil {
		return nil, fmt.Errorf("building the logger: %w", err)
	}
	ctrl.SetLogger(zapr.NewLogger(logger))
	klog.SetLogger(zapr.NewLogger(logger))
	return logger, nil
}

func config(level zapcore.Level) zap.Config {
	config := zap.NewProductionConfig()
	config.Level = zap.NewAtomicLevelAt(level)
	config.Sampling = nil
	config.DisableCaller = true
	config.DisableStacktrace = true // Build would add them to errors
	config.EncoderConfig.EncodeTime = zapcore.RFC3339NanoTimeEncoder
	return config
}

// Ended logs why a program ends, as its last line. Standard error is all that is left where that fails.
func Ended(program string, why error) {
	logger, err := config(zapcore.ErrorLevel).Build()
	if err != nil {
		return
	}
	logger.Error("ended", zap.String("program", program), zap.String("error", why.Error()))
}
