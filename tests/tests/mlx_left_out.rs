//! A build without MLX's library says that it does not test the MLX device.
#![cfg(not(feature = "mlx"))]

#[test]
#[ignore = "this build is without MLX's library: cargo xtask mlx --test"]
fn the_mlx_device() {
    panic!("`cargo xtask mlx --test` fetches the library and runs these tests");
}
