// SPDX-License-Identifier: Apache-2.0
// TensorFlow's C interface as this library uses it: declarations of our own, functions found in the process at run
// time. So one file serves every TensorFlow since 2.13, whose first release has asynchronous kernels, and nothing is
// linked.
#ifndef HVD_TENSORFLOW_TF_API_H_
#define HVD_TENSORFLOW_TF_API_H_

#include <cstddef>
#include <cstdint>
#include <string>

namespace hvd::tensorflow {

struct TF_Status;
struct TF_Tensor;
struct TF_OpDefinitionBuilder;
struct TF_ShapeInferenceContext;
struct TF_ShapeHandle;
struct TF_KernelBuilder;
struct TF_OpKernelConstruction;
struct TF_OpKernelContext;
struct TF_AsyncOpKernelDoneCallback;

using ShapeFunction = void (*)(TF_ShapeInferenceContext*, TF_Status*);
using CreateFunction = void* (*)(TF_OpKernelConstruction*);
using ComputeFunction = void (*)(void*, TF_OpKernelContext*);
using ComputeAsyncFunction = void (*)(void*, TF_OpKernelContext*, TF_AsyncOpKernelDoneCallback*);
using DeleteFunction = void (*)(void*);

// Name, result and arguments of every function; signatures are equal in all releases from 2.13 on.
#define HVD_TF_FUNCTIONS(X)                                                                                          \
  X(TF_NewOpDefinitionBuilder, TF_OpDefinitionBuilder*, (const char*))                                               \
  X(TF_OpDefinitionBuilderAddAttr, void, (TF_OpDefinitionBuilder*, const char*))                                     \
  X(TF_OpDefinitionBuilderAddInput, void, (TF_OpDefinitionBuilder*, const char*))                                    \
  X(TF_OpDefinitionBuilderAddOutput, void, (TF_OpDefinitionBuilder*, const char*))                                   \
  X(TF_OpDefinitionBuilderSetIsStateful, void, (TF_OpDefinitionBuilder*, bool))                                      \
  X(TF_OpDefinitionBuilderSetShapeInferenceFunction, void, (TF_OpDefinitionBuilder*, ShapeFunction))                 \
  X(TF_RegisterOpDefinition, void, (TF_OpDefinitionBuilder*, TF_Status*))                                            \
  X(TF_NewKernelBuilder, TF_KernelBuilder*,                                                                          \
    (const char*, const char*, CreateFunction, ComputeFunction, DeleteFunction))                                     \
  X(TF_NewAsyncKernelBuilder, TF_KernelBuilder*,                                                                     \
    (const char*, const char*, CreateFunction, ComputeAsyncFunction, DeleteFunction))                                \
  X(TF_RegisterKernelBuilder, void, (const char*, TF_KernelBuilder*, TF_Status*))                                    \
  X(TF_RunAsyncOpKernelDoneCallback, void, (TF_AsyncOpKernelDoneCallback*))                                          \
  X(TF_OpKernelConstruction_GetAttrInt64, void, (TF_OpKernelConstruction*, const char*, int64_t*, TF_Status*))       \
  X(TF_OpKernelConstruction_GetAttrBool, void, (TF_OpKernelConstruction*, const char*, unsigned char*, TF_Status*))  \
  X(TF_OpKernelConstruction_GetAttrSize, void,                                                                       \
    (TF_OpKernelConstruction*, const char*, int32_t*, int32_t*, TF_Status*))                                         \
  X(TF_OpKernelConstruction_GetAttrString, void, (TF_OpKernelConstruction*, const char*, char*, size_t, TF_Status*)) \
  X(TF_OpKernelConstruction_Failure, void, (TF_OpKernelConstruction*, TF_Status*))                                   \
  X(TF_NumInputs, int, (TF_OpKernelContext*))                                                                        \
  X(TF_GetInput, void, (TF_OpKernelContext*, int, TF_Tensor**, TF_Status*))                                          \
  X(TF_AllocateOutput, TF_Tensor*, (TF_OpKernelContext*, int, int, const int64_t*, int, size_t, TF_Status*))         \
  X(TF_ForwardInputOrAllocateOutput, TF_Tensor*,                                                                     \
    (TF_OpKernelContext*, const int*, int, int, const int64_t*, int, int*, TF_Status*))                              \
  X(TF_OpKernelContext_Failure, void, (TF_OpKernelContext*, TF_Status*))                                             \
  X(TF_DeleteTensor, void, (TF_Tensor*))                                                                             \
  X(TF_TensorType, int, (const TF_Tensor*))                                                                          \
  X(TF_NumDims, int, (const TF_Tensor*))                                                                             \
  X(TF_Dim, int64_t, (const TF_Tensor*, int))                                                                        \
  X(TF_TensorByteSize, size_t, (const TF_Tensor*))                                                                   \
  X(TF_TensorData, void*, (const TF_Tensor*))                                                                        \
  X(TF_NewStatus, TF_Status*, ())                                                                                    \
  X(TF_DeleteStatus, void, (TF_Status*))                                                                             \
  X(TF_SetStatus, void, (TF_Status*, int, const char*))                                                              \
  X(TF_GetCode, int, (const TF_Status*))                                                                             \
  X(TF_Message, const char*, (const TF_Status*))                                                                     \
  X(TF_ShapeInferenceContextNumInputs, int64_t, (TF_ShapeInferenceContext*))                                         \
  X(TF_NewShapeHandle, TF_ShapeHandle*, ())                                                                          \
  X(TF_DeleteShapeHandle, void, (TF_ShapeHandle*))                                                                   \
  X(TF_ShapeInferenceContextGetInput, void, (TF_ShapeInferenceContext*, int, TF_ShapeHandle*, TF_Status*))           \
  X(TF_ShapeInferenceContextSetOutput, void, (TF_ShapeInferenceContext*, int, TF_ShapeHandle*, TF_Status*))          \
  X(TF_ShapeInferenceContextScalar, TF_ShapeHandle*, (TF_ShapeInferenceContext*))                                    \
  X(TF_ShapeInferenceContextSetUnknownShape, void, (TF_ShapeInferenceContext*, TF_Status*))

struct TfApi {
#define HVD_TF_DECLARE(name, result, arguments) result(*name) arguments = nullptr;
  HVD_TF_FUNCTIONS(HVD_TF_DECLARE)
#undef HVD_TF_DECLARE
};

// The functions of the TensorFlow in this process. Filled by LoadTfApi.
extern TfApi tf;

// Finds all functions. Returns "" or the names of those that are missing.
std::string LoadTfApi();

}  // namespace hvd::tensorflow

#endif  // HVD_TENSORFLOW_TF_API_H_
