// Original file: proto/grpc/health/v1/health.proto


// Original file: proto/grpc/health/v1/health.proto

/**
 * Whether a service can be used.
 */
export const _grpc_health_v1_HealthCheckResponse_ServingStatus = {
  /**
   * Not known yet.
   */
  UNKNOWN: 'UNKNOWN',
  /**
   * It can be used.
   */
  SERVING: 'SERVING',
  /**
   * It can't be used now.
   */
  NOT_SERVING: 'NOT_SERVING',
  /**
   * There is no such service here. Only Watch says so.
   */
  SERVICE_UNKNOWN: 'SERVICE_UNKNOWN',
} as const;

/**
 * Whether a service can be used.
 */
export type _grpc_health_v1_HealthCheckResponse_ServingStatus =
  /**
   * Not known yet.
   */
  | 'UNKNOWN'
  | 0
  /**
   * It can be used.
   */
  | 'SERVING'
  | 1
  /**
   * It can't be used now.
   */
  | 'NOT_SERVING'
  | 2
  /**
   * There is no such service here. Only Watch says so.
   */
  | 'SERVICE_UNKNOWN'
  | 3

/**
 * Whether a service can be used.
 */
export type _grpc_health_v1_HealthCheckResponse_ServingStatus__Output = typeof _grpc_health_v1_HealthCheckResponse_ServingStatus[keyof typeof _grpc_health_v1_HealthCheckResponse_ServingStatus]

/**
 * Tells the status of one service.
 */
export interface HealthCheckResponse {
  /**
   * The status.
   */
  'status'?: (_grpc_health_v1_HealthCheckResponse_ServingStatus);
}

/**
 * Tells the status of one service.
 */
export interface HealthCheckResponse__Output {
  /**
   * The status.
   */
  'status': (_grpc_health_v1_HealthCheckResponse_ServingStatus__Output);
}
