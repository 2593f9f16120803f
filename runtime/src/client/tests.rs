use kube::api::{Api, PostParams};

use super::*;
