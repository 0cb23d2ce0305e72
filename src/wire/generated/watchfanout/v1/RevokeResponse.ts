// Original file: proto/watchfanout/v1/lease_service.proto


/**
 * The lease has ended.
 */
export interface RevokeResponse {
}

/**
 * The lease has ended.
 */
export interface RevokeResponse__Output {
}
