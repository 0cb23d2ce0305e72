// Original file: proto/grpc/health/v1/health.proto


/**
 * Names a service.
 */
export interface HealthCheckRequest {
  /**
   * A service's full name, or "resource/" and a resource's name. Empty: the server as a whole.
   */
  'service'?: (string);
}

/**
 * Names a service.
 */
export interface HealthCheckRequest__Output {
  /**
   * A service's full name, or "resource/" and a resource's name. Empty: the server as a whole.
   */
  'service': (string);
}
