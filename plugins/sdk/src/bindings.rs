//! What `wit-bindgen` makes of the contract: one set of bindings for each interface that a module may export, so that a
//! module exports what it has and no more. The parts of the contract that they share are those of `base`.

pub mod base {
    wit_bindgen::generate!({
        path: "../wit/0.1.0",
        world: "levada:plugin/base",
        pub_export_macro: true,
        default_bindings_module: "levada_plugin::bindings::base",
        generate_unused_types: true,
        additional_derives: [PartialEq],
    });
}

pub mod transform {
    wit_bindgen::generate!({
        path: "../wit/0.1.0",
        inline: "package levada:sdk; world transform-alone { export levada:plugin/transform@0.1.0; }",
        world: "levada:sdk/transform-alone",
        pub_export_macro: true,
        additional_derives: [PartialEq],
        with: { "levada:plugin/types@0.1.0": crate::bindings::base::levada::plugin::types },
    });
}

pub mod partitioner {
    wit_bindgen::generate!({
        path: "../wit/0.1.0",
        inline: "package levada:sdk; world partitioner-alone { export levada:plugin/partitioner@0.1.0; }",
        world: "levada:sdk/partitioner-alone",
        pub_export_macro: true,
        additional_derives: [PartialEq],
    });
}

pub mod assignor {
    wit_bindgen::generate!({
        path: "../wit/0.1.0",
        inline: "package levada:sdk; world assignor-alone { export levada:plugin/assignor@0.1.0; }",
        world: "levada:sdk/assignor-alone",
        pub_export_macro: true,
        additional_derives: [PartialEq],
        with: { "levada:plugin/types@0.1.0": crate::bindings::base::levada::plugin::types },
    });
}

pub mod aggregator {
    wit_bindgen::generate!({
        path: "../wit/0.1.0",
        inline: "package levada:sdk; world aggregator-alone { export levada:plugin/aggregator@0.1.0; }",
        world: "levada:sdk/aggregator-alone",
        pub_export_macro: true,
        additional_derives: [PartialEq],
        with: { "levada:plugin/types@0.1.0": crate::bindings::base::levada::plugin::types },
    });
}
