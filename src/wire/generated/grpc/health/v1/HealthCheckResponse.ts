// Original file: proto/grpc/health/v1/health.proto


// Original file: proto/grpc/health/v1/health.proto

/**
 * Whether a service is available.
 */
export const _grpc_health_v1_HealthCheckResponse_ServingStatus = {
  /**
   * Not known yet.
   */
  UNKNOWN: 'UNKNOWN',
  /**
   * It is available.
   */
  SERVING: 'SERVING',
  /**
   * It is not available now.
   */
  NOT_SERVING: 'NOT_SERVING',
  /**
   * The service does not exist here. Only Watch returns this.
   */
  SERVICE_UNKNOWN: 'SERVICE_UNKNOWN',
} as const;

/**
 * Whether a service is available.
 */
export type _grpc_health_v1_HealthCheckResponse_ServingStatus =
  /**
   * Not known yet.
   */
  | 'UNKNOWN'
  | 0
  /**
   * It is available.
   */
  | 'SERVING'
  | 1
  /**
   * It is not available now.
   */
  | 'NOT_SERVING'
  | 2
  /**
   * The service does not exist here. Only Watch returns this.
   */
  | 'SERVICE_UNKNOWN'
  | 3

/**
 * Whether a service is available.
 */
export type _grpc_health_v1_HealthCheckResponse_ServingStatus__Output = typeof _grpc_health_v1_HealthCheckResponse_ServingStatus[keyof typeof _grpc_health_v1_HealthCheckResponse_ServingStatus]

/**
 * The status of one service.
 */
export interface HealthCheckResponse {
  /**
   * The status.
   */
  'status'?: (_grpc_health_v1_HealthCheckResponse_ServingStatus);
}

/**
 * The status of one service.
 */
export interface HealthCheckResponse__Output {
  /**
   * The status.
   */
  'status': (_grpc_health_v1_HealthCheckResponse_ServingStatus__Output);
}
