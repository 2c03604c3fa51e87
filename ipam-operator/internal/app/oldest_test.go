// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/matchconditions"
	"k8s.io/apiserver/pkg/cel/environment"
	"k8s.io/apiserver/pkg/util/compatibility"
	basecompatibility "k8s.io/component-base/compatibility"
	"sigs.k8s.io/yaml"

	"github.com/muster-io/muster/apis/crd"
)

// oldestRules is the version of CEL's libraries that an API server of the oldest supported minor, 1.31, takes in new objects: those of the minor before.
var oldestRules = version.MajorMinor(1, 30)

// asOldest makes the validation of this process that of the oldest API server, until the test ends.
func asOldest(t *testing.T) {
	t.Helper()
	effective, ok := compatibility.DefaultComponentGlobalsRegistry.EffectiveVersionFor(basecompatibility.DefaultKubeComponent).(basecompatibility.MutableEffectiveVersion)
	require.True(t, ok)
	before := effective.MinCompatibilityVersion()
	effective.SetMinCompatibilityVersion(oldestRules)
	t.Cleanup(func() { effective.SetMinCompatibilityVersion(before) })
	require.Equal(t, oldestRules.String(), environment.DefaultCompatibilityVersion().String())
}

// The oldest supported API server knows every function that a rule of a custom resource or of an admission policy of any operator uses, and every rule is
// cheap enough for it.
func TestRulesAreKnownToTheOldestAPIServer(t *testing.T) {
	asOldest(t)
	definitions, err := fs.Glob(crd.FS, "*.yaml")
	require.NoError(t, err)
	for _, name := range definitions {
		content, err := fs.ReadFile(crd.FS, name)
		require.NoError(t, err)
		definition := &apiextensionsv1.CustomResourceDefinition{}
		require.NoError(t, yaml.UnmarshalStrict(content, definition), name)
		checkSchema(t, definition)
	}
	policies := 0
	require.NoError(t, filepath.WalkDir(filepath.Join("..", "..", "..", "deploy"), func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || filepath.Ext(path) != ".yaml" {
			return err
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for document := range bytes.SplitSeq(content, []byte("\n---\n")) {
			kind := metav1.TypeMeta{}
			_ = yaml.Unmarshal(document, &kind) // patches are not objects
			switch kind.Kind {
			case "ValidatingAdmissionPolicy":
				policy := &admissionregistrationv1.ValidatingAdmissionPolicy{}
				require.NoError(t, yaml.UnmarshalStrict(document, policy), path)
				checkPolicy(t, policy)
				policies++
			case "MutatingAdmissionPolicy":
				assert.Contains(t, filepath.ToSlash(path), "deploy/components/", "the oldest API server does not serve it: make it a component")
			}
		}
		return nil
	}))
	assert.Positive(t, policies)
}

func TestARuleThatTheOldestAPIServerDoesNotKnowIsFound(t *testing.T) {
	asOldest(t)
	assert.NotEmpty(t, problems(t, "format.dns1123Label().validate('a').hasValue()"), "a library of 1.31 counts as unknown")
	assert.Empty(t, problems(t, "isIP('10.0.0.1')"))
}

// checkSchema validates a definition as an API server does when it is created.
func checkSchema(t *testing.T, definition *apiextensionsv1.CustomResourceDefinition) {
	t.Helper()
	apiextensionsv1.SetDefaults_CustomResourceDefinition(definition)
	apiextensionsv1.SetDefaults_CustomResourceDefinitionSpec(&definition.Spec)
	internal := &apiextensions.CustomResourceDefinition{}
	require.NoError(t, apiextensionsv1.Convert_v1_CustomResourceDefinition_To_apiextensions_CustomResourceDefinition(definition, internal, nil))
	for _, v := range internal.Spec.Versions {
		if v.Storage {
			internal.Status.StoredVersions = []string{v.Name}
		}
	}
	for _, problem := range validation.ValidateCustomResourceDefinition(t.Context(), internal) {
		t.Errorf("%s: %s", definition.Name, problem)
	}
}

// checkPolicy compiles the expressions of a policy as an API server does when the policy is created.
func checkPolicy(t *testing.T, policy *admissionregistrationv1.ValidatingAdmissionPolicy) {
	t.Helper()
	compiler := compilerOfOldest(t)
	options := cel.OptionalVariableDeclarations{HasParams: policy.Spec.ParamKind != nil, HasAuthorizer: true}
	check := func(accessor cel.ExpressionAccessor) {
		if result := compiler.CompileCELExpression(accessor, options, environment.NewExpressions); result.Error != nil {
			t.Errorf("%s: %s: %v", policy.Name, accessor.GetExpression(), result.Error)
		}
	}
	for i := range policy.Spec.MatchConditions {
		check((*matchconditions.MatchCondition)(&policy.Spec.MatchConditions[i]))
	}
	for i := range policy.Spec.Variables {
		variable := &policy.Spec.Variables[i]
		if result := compiler.CompileAndStoreVariable(&validating.Variable{Name: variable.Name, Expression: variable.Expression}, options, environment.NewExpressions); result.Error != nil {
			t.Errorf("%s: variable %s: %v", policy.Name, variable.Name, result.Error)
		}
	}
	for _, v := range policy.Spec.Validations {
		check(&validating.ValidationCondition{Expression: v.Expression, Message: v.Message, Reason: v.Reason})
		if v.MessageExpression != "" {
			check(&validating.MessageExpressionCondition{MessageExpression: v.MessageExpression})
		}
	}
}

func compilerOfOldest(t *testing.T) *cel.CompositedCompiler {
	t.Helper()
	compiler, err := cel.NewCompositedCompiler(environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion()))
	require.NoError(t, err)
	return compiler
}

// problems are what the oldest API server has against an expression.
func problems(t *testing.T, expression string) string {
	t.Helper()
	result := compilerOfOldest(t).CompileCELExpression(&validating.ValidationCondition{Expression: expression}, cel.OptionalVariableDeclarations{}, environment.NewExpressions)
	if result.Error == nil {
		return ""
	}
	return result.Error.Error()
}
