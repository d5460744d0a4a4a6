//! Where a model runs.

use burn::tensor::Device;

use crate::error::ModelError;

/// A kind of device. The CPU is always there; the others are in a build with the feature of their name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceKind {
    /// The kernels of this project.
    Cpu,
    /// NVIDIA GPUs, by burn's CUDA runtime.
    Cuda,
    /// Apple GPUs, by burn's Metal runtime.
    Metal,
    /// AMD GPUs, by burn's ROCm runtime.
    Rocm,
    /// Any GPU with a graphics driver (Vulkan, Metal, DirectX 12), by burn's wgpu runtime.
    Wgpu,
}

impl DeviceKind {
    /// All of them, the CPU first.
    pub const ALL: [DeviceKind; 5] = [
        DeviceKind::Cpu,
        DeviceKind::Cuda,
        DeviceKind::Metal,
        DeviceKind::Rocm,
        DeviceKind::Wgpu,
    ];

    /// `cpu`, `cuda`, `metal`, `rocm` or `wgpu`; that of the feature, too.
    pub fn name(self) -> &'static str {
        match self {
            Self::Cpu => "cpu",
            Self::Cuda => "cuda",
            Self::Metal => "metal",
            Self::Rocm => "rocm",
            Self::Wgpu => "wgpu",
        }
    }

    /// Whether this build has a runtime for it.
    pub fn is_built(self) -> bool {
        match self {
            Self::Cpu => true,
            Self::Cuda => cfg!(feature = "cuda"),
            Self::Metal => cfg!(feature = "metal"),
            Self::Rocm => cfg!(feature = "rocm"),
            Self::Wgpu => cfg!(feature = "wgpu"),
        }
    }

    /// The burn devices of this kind on this machine, for the [operation](crate::attention()) alone; none in a build without the
    /// runtime. May start a driver.
    pub fn devices(self) -> Vec<Device> {
        self.enumerate().unwrap_or_default()
    }

    /// The first such device.
    ///
    /// # Errors
    /// A build without the runtime, a machine without the device.
    pub(crate) fn open(self) -> Result<Device, ModelError> {
        let Some(devices) = self.enumerate() else {
            return Err(ModelError::Device(format!(
                "device {name}: built without feature {name}; rebuild with `--features {name}`, or use the cpu",
                name = self.name()
            )));
        };
        devices.into_iter().next().ok_or_else(|| {
            ModelError::Device(format!(
                "device {}: none found on this machine; use the cpu",
                self.name()
            ))
        })
    }

    /// `None` without the runtime.
    fn enumerate(self) -> Option<Vec<Device>> {
        #[cfg(any(
            feature = "cuda",
            feature = "metal",
            feature = "rocm",
            feature = "wgpu"
        ))]
        use burn::tensor::DeviceType;
        match self {
            Self::Cpu => Some(vec![Device::flex()]),
            #[cfg(feature = "cuda")]
            Self::Cuda => Some(Device::enumerate(DeviceType::Cuda).into_vec()),
            #[cfg(feature = "metal")]
            Self::Metal => Some(Device::enumerate(DeviceType::Metal).into_vec()),
            #[cfg(feature = "rocm")]
            Self::Rocm => Some(Device::enumerate(DeviceType::Rocm).into_vec()),
            #[cfg(feature = "wgpu")]
            Self::Wgpu => Some(Device::enumerate(DeviceType::Wgpu).into_vec()),
            #[allow(unreachable_patterns, reason = "a build with every runtime")]
            _ => None,
        }
    }
}
