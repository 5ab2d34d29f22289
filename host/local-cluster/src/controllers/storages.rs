//! Where the built-in kinds that controllers read are stored. It must not know what is stored there.

use std::sync::LazyLock;

use crate::resource::Storage;

macro_rules! storages {
    ($($name:ident = $group:literal $plural:literal),* $(,)?) => {
        $(pub(super) static $name: LazyLock<Storage> = LazyLock::new(|| Storage::new($group, $plural));)*
    };
}

storages! {
    EVENTS = "" "events",
}
