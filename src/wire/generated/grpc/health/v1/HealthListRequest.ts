// Original file: proto/grpc/health/v1/health.proto


/**
 * Asks for everything.
 */
export interface HealthListRequest {
}

/**
 * Asks for everything.
 */
export interface HealthListRequest__Output {
}
