//! Tests of the SDK.
