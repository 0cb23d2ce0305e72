// Original file: proto/grpc/reflection/v1alpha/reflection.proto

import type { ServiceResponse as _grpc_reflection_v1alpha_ServiceResponse, ServiceResponse__Output as _grpc_reflection_v1alpha_ServiceResponse__Output } from '../../../grpc/reflection/v1alpha/ServiceResponse.ts';

/**
 * Services.
 */
export interface ListServiceResponse {
  /**
   * In no particular order.
   */
  'service'?: (_grpc_reflection_v1alpha_ServiceResponse)[];
}

/**
 * Services.
 */
export interface ListServiceResponse__Output {
  /**
   * In no particular order.
   */
  'service': (_grpc_reflection_v1alpha_ServiceResponse__Output)[];
}
