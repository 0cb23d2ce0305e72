// Original file: proto/grpc/reflection/v1/reflection.proto

import type { ServiceResponse as _grpc_reflection_v1_ServiceResponse, ServiceResponse__Output as _grpc_reflection_v1_ServiceResponse__Output } from '../../../grpc/reflection/v1/ServiceResponse.ts';

/**
 * Services.
 */
export interface ListServiceResponse {
  /**
   * In no particular order.
   */
  'service'?: (_grpc_reflection_v1_ServiceResponse)[];
}

/**
 * Services.
 */
export interface ListServiceResponse__Output {
  /**
   * In no particular order.
   */
  'service': (_grpc_reflection_v1_ServiceResponse__Output)[];
}
