// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/ext"
)

// costLimit bounds one evaluation: a selector is the administrator's, but what it looks at is the machine's.
const costLimit = 1_000_000

// Expression is a compiled CEL expression over the facts of a machine.
type Expression struct{ program cel.Program }

// Text is a value in which ${…} is replaced by the value of an expression.
type Text struct {
	// literals surround the expressions: one more of them than expressions.
	literals    []string
	expressions []*Expression
	// Counts says that the text is a name with a counter.
	Counts bool
}

// environment declares the variables. It never fails: the test of this package compiles with it.
var environment = func() *cel.Env {
	env, err := cel.NewEnv(
		cel.Variable("hardware", cel.DynType), cel.Variable("node", cel.DynType),
		cel.Variable("bootMAC", cel.StringType), cel.Variable("bmcAddress", cel.StringType),
		ext.Strings(),
	)
	if err != nil {
		panic(err)
	}
	return env
}()

// counter is the variable of names that counts machines: the first number from 1 on that gives a name that is free.
const counter = "counter"

// namingEnvironment declares the counter beside the other variables.
var namingEnvironment = func() *cel.Env {
	env, err := environment.Extend(cel.Variable(counter, cel.IntType))
	if err != nil {
		panic(err)
	}
	return env
}()

// Compile compiles an expression. The error says where it is wrong.
func Compile(source string) (*Expression, error) { return compile(environment, source) }

func compile(env *cel.Env, source string) (*Expression, error) {
	ast, issues := env.Compile(source)
	if issues.Err() != nil {
		return nil, fmt.Errorf("compiling %q: %w", source, issues.Err())
	}
	program, err := env.Program(ast, cel.CostLimit(costLimit))
	if err != nil {
		return nil, fmt.Errorf("compiling %q: %w", source, err)
	}
	return &Expression{program}, nil
}

// CompileSelector compiles an expression that must be true or false.
func CompileSelector(source string) (*Expression, error) {
	ast, issues := environment.Compile(source)
	if issues.Err() == nil {
		if t := ast.OutputType(); !t.IsExactType(types.BoolType) && !t.IsExactType(types.DynType) {
			return nil, fmt.Errorf("compiling %q: the expression is a %s, it must be true or false", source, t)
		}
	}
	return Compile(source)
}

// CompileText compiles a value with ${…} in it.
func CompileText(source string) (*Text, error) { return compileText(environment, source) }

// CompileName compiles a name with ${…} in it, which may use the counter.
func CompileName(source string) (*Text, error) {
	t, err := compileText(environment, source)
	if err == nil {
		return t, nil
	}
	if t, err = compileText(namingEnvironment, source); err == nil {
		t.Counts = true
	}
	return t, err
}

func compileText(env *cel.Env, source string) (*Text, error) {
	t := &Text{}
	for {
		before, rest, found := strings.Cut(source, "${")
		t.literals = append(t.literals, before)
		if !found {
			return t, nil
		}
		inner, after, closed := cutExpression(rest)
		if !closed {
			return nil, fmt.Errorf("compiling %q: ${ is not closed by }", source)
		}
		e, err := compile(env, inner)
		if err != nil {
			return nil, err
		}
		t.expressions = append(t.expressions, e)
		source = after
	}
}

// cutExpression finds the } that closes an expression; braces inside it come in pairs.
func cutExpression(s string) (inner, after string, ok bool) {
	depth := 0
	for i, r := range s {
		switch r {
		case '{':
			depth++
		case '}':
			if depth == 0 {
				return s[:i], s[i+1:], true
			}
			depth--
		}
	}
	return "", "", false
}

// Facts are the variables of expressions for one machine.
type Facts map[string]any

// factsOf lists the facts of a whole machine. Its hardware is converted where an expression asks for it, and once.
func factsOf(m *Machine, boot string) Facts {
	hardware := func() any {
		fields := map[string]any{}
		if data, err := json.Marshal(m.Report.Hardware); err == nil {
			_ = json.Unmarshal(data, &fields)
		}
		return fields
	}
	return Facts{
		"hardware": hardware, "bootMAC": boot, "bmcAddress": m.Report.BMCAddress,
		"node": map[string]any{
			"uuid": m.Node.UUID, "name": m.Node.Name, "driver": m.Node.Driver, "state": m.Node.State,
			"autoDiscovered": m.Report.AutoDiscovered,
		},
	}
}

// Match evaluates a selector. A failure, for example on a field that the machine did not report, is no match.
func (e *Expression) Match(f Facts) (bool, error) {
	value, _, err := e.program.Eval(map[string]any(f))
	switch {
	case err != nil:
		return false, fmt.Errorf("evaluating the selector: %w", err)
	case value.Type() != types.BoolType:
		return false, fmt.Errorf("evaluating the selector: a %s is neither true nor false", value.Type().TypeName())
	default:
		return value.Value() == true, nil
	}
}

// Value evaluates the text.
func (t *Text) Value(f Facts) (string, error) {
	var b strings.Builder
	for i, literal := range t.literals {
		b.WriteString(literal)
		if i == len(t.expressions) {
			break
		}
		value, _, err := t.expressions[i].program.Eval(map[string]any(f))
		if err != nil {
			return "", fmt.Errorf("evaluating a template value: %w", err)
		}
		s, ok := value.ConvertToType(types.StringType).Value().(string)
		if !ok {
			return "", fmt.Errorf("evaluating a template value: a %s is not text", value.Type().TypeName())
		}
		b.WriteString(s)
	}
	return b.String(), nil
}
