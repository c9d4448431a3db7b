//! What is known of a module's bytes before any of it is compiled or run: sizes, imports and exports. What is too large or
//! asks for what is not given goes no further, so that the compiler's time and memory are bounded by what is counted here.

use levada_extension::ModuleRefusal;
use levada_model::limits::MODULE_BYTES_MAX;
use wasmparser::{
    ComponentExternalKind, ComponentTypeRef, CompositeInnerType, Encoding, FunctionBody, Operator, Parser, Payload,
    TableType, TypeRef,
};

use crate::contract;

/// Most core modules of a component, and most components in it. Python's has about thirty libraries.
const PARTS_MAX: u64 = 100;
/// Deepest nesting of components; toolchains write two levels.
const DEPTH_MAX: u64 = 8;
/// Most functions of all its core modules together. CPython has 15,000.
const FUNCTIONS_MAX: u64 = 100_000;
/// Largest body of a function. The compiler's time and memory grow faster than a body does.
const FUNCTION_BYTES_MAX: u64 = 512 << 10;
/// Most local variables of a function.
const LOCALS_MAX: u64 = 20_000;
/// Most local variables times levels of nested blocks in a function. Where blocks join, the compiler may need a value for
/// each variable at each level; without this cap half a megabyte of code can ask for hundreds of gigabytes.
const LOCALS_TIMES_LEVELS_MAX: u64 = 4_000_000;
/// Most parameters and results of a type. Each block and call of it passes them all.
const TYPE_VALUES_MAX: u64 = 100;
/// Most items (types, imports, exports, instances, aliases, …) of all sections together, functions aside.
const ITEMS_MAX: u64 = 200_000;
/// Most elements of a table at its start.
pub(crate) const TABLE_ELEMENTS_MAX: u64 = 20_000;
const WASM_PAGE_BYTES: u64 = 64 << 10;

/// What the bytes are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// A component.
    Component,
    /// A core module, which may become one.
    Core {
        /// Whether it was compiled for WASI's first preview.
        wasi: bool,
    },
}

/// Checks the bytes of a module whose instances may have so much memory.
pub(crate) fn inspect(wasm: &[u8], memory_bytes_max: usize) -> Result<Form, ModuleRefusal> {
    at_most("bytes", wasm.len() as u64, MODULE_BYTES_MAX as u64)?;
    let form = match (Parser::is_component(wasm), Parser::is_core_wasm(wasm)) {
        (true, _) => Form::Component,
        (_, true) => Form::Core { wasi: false },
        _ => return Err(ModuleRefusal::Invalid { detail: "it is no WebAssembly".to_owned() }),
    };
    let (open, exports) = (Vec::new(), Vec::new());
    let mut walk = Walk { form, memory_bytes_max, open, parts: 0, functions: 0, items: 0, exports };
    for payload in Parser::new(0).parse_all(wasm) {
        walk.payload(payload.map_err(invalid)?)?;
    }
    if walk.form == Form::Component {
        contract::check_exports(&walk.exports)?;
    }
    Ok(walk.form)
}

struct Walk {
    form: Form,
    memory_bytes_max: usize,
    /// The modules and components that the walk is in, outermost first.
    open: Vec<Encoding>,
    parts: u64,
    functions: u64,
    items: u64,
    /// The instances that the outermost component exports.
    exports: Vec<String>,
}

impl Walk {
    fn payload(&mut self, payload: Payload<'_>) -> Result<(), ModuleRefusal> {
        match payload {
            Payload::Version { encoding, .. } => {
                self.open.push(encoding);
                at_most("levels of nested components", self.open.len() as u64, DEPTH_MAX)?;
                self.parts += 1;
                at_most("core modules and components", self.parts, PARTS_MAX)?;
            }
            Payload::End(_) => drop(self.open.pop()),
            Payload::CodeSectionStart { count, .. } => {
                self.functions += u64::from(count);
                at_most("functions", self.functions, FUNCTIONS_MAX)?;
            }
            Payload::CodeSectionEntry(body) => function_compiles(&body)?,
            Payload::TypeSection(types) => {
                self.items(types.count())?;
                for group in types {
                    for ty in group.map_err(invalid)?.types() {
                        if let CompositeInnerType::Func(func) = &ty.composite_type.inner {
                            let values = func.params().len() + func.results().len();
                            at_most("parameters and results in one type", values as u64, TYPE_VALUES_MAX)?;
                        }
                    }
                }
            }
            Payload::MemorySection(memories) => {
                self.items(memories.count())?;
                for memory in memories {
                    self.memory_fits(memory.map_err(invalid)?.initial)?;
                }
            }
            Payload::TableSection(tables) => {
                self.items(tables.count())?;
                for table in tables {
                    table_fits(table.map_err(invalid)?.ty)?;
                }
            }
            Payload::ImportSection(imports) => {
                self.items(imports.count())?;
                for import in imports.into_imports() {
                    let import = import.map_err(invalid)?;
                    self.core_import(import.module, import.name, import.ty)?;
                }
            }
            Payload::ComponentImportSection(imports) => {
                self.items(imports.count())?;
                for import in imports {
                    let import = import.map_err(invalid)?;
                    self.component_import(import.name.name, import.ty)?;
                }
            }
            Payload::ComponentExportSection(exports) => {
                self.items(exports.count())?;
                for export in exports {
                    let export = export.map_err(invalid)?;
                    if self.open.len() == 1 && export.kind == ComponentExternalKind::Instance {
                        self.exports.push(export.name.name.to_owned());
                    }
                }
            }
            other => self.other_section(&other)?,
        }
        Ok(())
    }

    fn other_section(&mut self, payload: &Payload<'_>) -> Result<(), ModuleRefusal> {
        let count = match payload {
            Payload::GlobalSection(section) => section.count(),
            Payload::ExportSection(section) => section.count(),
            Payload::ElementSection(section) => section.count(),
            Payload::DataSection(section) => section.count(),
            Payload::TagSection(section) => section.count(),
            Payload::InstanceSection(section) => section.count(),
            Payload::CoreTypeSection(section) => section.count(),
            Payload::ComponentInstanceSection(section) => section.count(),
            Payload::ComponentAliasSection(section) => section.count(),
            Payload::ComponentTypeSection(section) => section.count(),
            Payload::ComponentCanonicalSection(section) => section.count(),
            _ => 1,
        };
        self.items(count)
    }

    fn core_import(&mut self, module: &str, name: &str, ty: TypeRef) -> Result<(), ModuleRefusal> {
        match ty {
            TypeRef::Memory(memory) => self.memory_fits(memory.initial)?,
            TypeRef::Table(table) => table_fits(table)?,
            _ => (),
        }
        if let Form::Core { wasi } = &mut self.form {
            *wasi |= module == contract::WASI_PREVIEW_1;
            let granted = module == contract::WASI_PREVIEW_1
                || module.starts_with(contract::PACKAGE)
                || module.starts_with("wasi:")
                // Of the module's own exported resources.
                || module.starts_with("[export]");
            if !granted {
                return Err(ModuleRefusal::Import { import: format!("{module} {name}") });
            }
        }
        Ok(())
    }

    fn component_import(&mut self, name: &str, ty: ComponentTypeRef) -> Result<(), ModuleRefusal> {
        let granted = matches!(ty, ComponentTypeRef::Instance(_)) && contract::grants(name);
        match self.open.len() > 1 || granted {
            true => Ok(()),
            false => Err(ModuleRefusal::Import { import: name.to_owned() }),
        }
    }

    fn memory_fits(&self, initial_pages: u64) -> Result<(), ModuleRefusal> {
        let bytes = initial_pages.saturating_mul(WASM_PAGE_BYTES);
        at_most("bytes of memory at its start", bytes, self.memory_bytes_max as u64)
    }

    fn items(&mut self, count: u32) -> Result<(), ModuleRefusal> {
        self.items += u64::from(count);
        at_most("items in its sections", self.items, ITEMS_MAX)
    }
}

/// That the compiler's time and memory for a function are bounded.
fn function_compiles(body: &FunctionBody<'_>) -> Result<(), ModuleRefusal> {
    let range = body.range();
    at_most("bytes in one function", (range.end - range.start) as u64, FUNCTION_BYTES_MAX)?;
    let mut locals = 0;
    for group in body.get_locals_reader().map_err(invalid)? {
        locals += u64::from(group.map_err(invalid)?.0);
        at_most("local variables in one function", locals, LOCALS_MAX)?;
    }
    let (mut level, mut deepest) = (0_u64, 0_u64);
    for operator in body.get_operators_reader().map_err(invalid)? {
        match operator.map_err(invalid)? {
            Operator::Block { .. } | Operator::Loop { .. } | Operator::If { .. } | Operator::TryTable { .. } => {
                level += 1;
                deepest = deepest.max(level);
            }
            Operator::End => level = level.saturating_sub(1),
            _ => (),
        }
    }
    at_most("local variables times levels of blocks in one function", locals * deepest, LOCALS_TIMES_LEVELS_MAX)
}

fn table_fits(table: TableType) -> Result<(), ModuleRefusal> {
    at_most("elements in a table", table.initial, TABLE_ELEMENTS_MAX)
}

fn at_most(what: &'static str, got: u64, max: u64) -> Result<(), ModuleRefusal> {
    match got > max {
        true => Err(ModuleRefusal::Limit { what, got, max }),
        false => Ok(()),
    }
}

fn invalid(error: wasmparser::BinaryReaderError) -> ModuleRefusal {
    ModuleRefusal::Invalid { detail: error.to_string() }
}
