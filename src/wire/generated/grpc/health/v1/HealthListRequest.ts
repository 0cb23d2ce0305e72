// Original file: proto/grpc/health/v1/health.proto


/**
 * Requests the status of all services.
 */
export interface HealthListRequest {
}

/**
 * Requests the status of all services.
 */
export interface HealthListRequest__Output {
}
