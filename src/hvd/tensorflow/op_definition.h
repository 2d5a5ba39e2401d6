// SPDX-License-Identifier: Apache-2.0
// The definition of one operation, in the text form that TensorFlow reads ("T: type", "tensor: T").
#ifndef HVD_TENSORFLOW_OP_DEFINITION_H_
#define HVD_TENSORFLOW_OP_DEFINITION_H_

#include <string>
#include <vector>

#include "hvd/tensorflow/owned.h"
#include "hvd/tensorflow/tf_api.h"

namespace hvd::tensorflow {

struct OpDefinition {
  const char* name;
  std::vector<const char*> attributes;
  std::vector<const char*> inputs;
  std::vector<const char*> outputs;
  ShapeFunction shape;
};

// All are stateful: a stateless node that is fed by constants would run once and never again, and one whose result is
// unused on one rank only would leave the others waiting.
inline std::string Register(const OpDefinition& definition, TF_KernelBuilder* kernel) {
  const TfStatus status;
  TF_OpDefinitionBuilder* builder = tf.TF_NewOpDefinitionBuilder(definition.name);
  for (const char* attribute : definition.attributes) tf.TF_OpDefinitionBuilderAddAttr(builder, attribute);
  for (const char* input : definition.inputs) tf.TF_OpDefinitionBuilderAddInput(builder, input);
  for (const char* output : definition.outputs) tf.TF_OpDefinitionBuilderAddOutput(builder, output);
  tf.TF_OpDefinitionBuilderSetIsStateful(builder, true);
  tf.TF_OpDefinitionBuilderSetShapeInferenceFunction(builder, definition.shape);
  tf.TF_RegisterOpDefinition(builder, status.get());
  if (status.ok()) tf.TF_RegisterKernelBuilder(definition.name, kernel, status.get());
  return status.ok() ? "" : std::string(definition.name) + ": " + status.text();
}

}  // namespace hvd::tensorflow

#endif  // HVD_TENSORFLOW_OP_DEFINITION_H_
