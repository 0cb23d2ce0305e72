// Original file: proto/grpc/health/v1/health.proto

import type { HealthCheckResponse as _grpc_health_v1_HealthCheckResponse, HealthCheckResponse__Output as _grpc_health_v1_HealthCheckResponse__Output } from '../../../grpc/health/v1/HealthCheckResponse.ts';

/**
 * The status of all services.
 */
export interface HealthListResponse {
  /**
   * By the name that Check takes.
   */
  'statuses'?: ({[key: string]: _grpc_health_v1_HealthCheckResponse});
}

/**
 * The status of all services.
 */
export interface HealthListResponse__Output {
  /**
   * By the name that Check takes.
   */
  'statuses': ({[key: string]: _grpc_health_v1_HealthCheckResponse__Output});
}
