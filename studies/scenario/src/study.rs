//! Loads and checks a study file, and builds its plan.

mod resolved;

use crate::axis;
use crate::certificates;
use crate::check;
use crate::founding;
use crate::lab;
use crate::model::{ConfigValue, Scenario, StudyAxis, StudyFile, StudyInputFiles};
use crate::plan::{
    AxisSetting, DEFAULT, PlanOverrides, PlanPoint, PlannedAxis, StudyMode, StudyPlan, VARIANT,
    grid_point_key,
};
use crate::presets;
use crate::processors;
use crate::services;
use crate::setting;
use sha2::{Digest, Sha256};
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use usher_config::OrderedMap;
use usher_config::disk::DiskEnvironment;
use usher_config::tree::{self, TreeNode};
use usher_config::units::{PositiveCount, Quantity};
use usher_config::{
    ConfigDiagnostic, ConfigEnvironment, ConfigErrors, ConfigFormat, DiagnosticCollector, OptionalPosition,
    SourceFile, name_hint,
};
use usher_core::Seed;

/// Limit of points in a plan.
pub const MAX_POINTS: usize = 100_000;

/// A study file that was read, with axis values that fit their settings.
#[derive(Clone, Debug)]
pub struct Study {
    name: String,
    /// The study's file and its includes.
    sources: Vec<Arc<SourceFile>>,
    warnings: Vec<ConfigDiagnostic>,
    file: StudyFile,
    tree: TreeNode,
    from: StudyFileSource,
}

/// The format of study files.
pub const FORMAT: ConfigFormat = ConfigFormat { description: "a study", version: 1, retired: &[] };

/// Returns the JSON Schema of study files, as in `docs/study.schema.json`: indented, with a final newline.
pub fn json_schema() -> String {
    usher_config::json_schema::<StudyFile>(&FORMAT)
}

/// The source of included files and service configurations.
#[derive(Clone, Copy, Debug)]
enum StudyFileSource {
    /// The program: the study is a text, and only files that come with the program exist.
    Shipped,
    /// The disk.
    Disk,
}

impl StudyFileSource {
    const fn file_environment(self) -> &'static dyn ConfigEnvironment {
        match self {
            Self::Shipped => &founding::ShippedFiles,
            Self::Disk => &DiskEnvironment,
        }
    }
}

/// An error that prevents loading a study.
#[derive(Debug)]
pub enum LoadError {
    /// The file could not be read.
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The error of the operating system.
        source: std::io::Error,
    },
    /// The name is neither a founding study nor a file.
    UnknownName {
        /// The name, as given.
        name: String,
    },
    /// The file has faults.
    Faults(ConfigErrors),
}

impl std::fmt::Display for LoadError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Unreadable { path, source } => write!(f, "cannot read {}: {source}", path.display()),
            Self::UnknownName { name } => {
                let known = name_hint(name, founding::founding_studies().iter().map(|s| s.name));
                write!(f, "\"{name}\" is neither a study's name nor a file{known}")
            }
            Self::Faults(faults) => faults.fmt(f),
        }
    }
}

impl std::error::Error for LoadError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Unreadable { source, .. } => Some(source),
            Self::UnknownName { .. } | Self::Faults(_) => None,
        }
    }
}

impl From<ConfigErrors> for LoadError {
    fn from(faults: ConfigErrors) -> Self {
        Self::Faults(faults)
    }
}

/// Other files read so far.
#[derive(Debug, Default)]
struct StudyFileCache {
    services: services::ServiceConfigCache,
    certificates: certificates::CertificateCache,
}

/// One axis value in a plan: its text and the settings that it changes.
struct PlannedAxisValue {
    setting: AxisSetting,
    changes: Vec<SettingChange>,
}

/// A new value for a setting.
#[derive(Clone)]
struct SettingChange {
    path: String,
    node: TreeNode,
    path_span: OptionalPosition,
}

impl Study {
    /// Reads a study from its text. `name` is its name in rows and reports, `origin` the name of the file in messages.
    ///
    /// # Errors
    /// All faults of the text.
    pub fn parse(name: &str, origin: &str, text: &str) -> Result<Self, ConfigErrors> {
        Self::parse_from_origin(name, origin, text, StudyFileSource::Shipped)
    }

    /// Like `parse`, for a text without a file of its own, such as one from another process. The files that it names
    /// are on the disk.
    ///
    /// # Errors
    /// All faults of the text.
    pub fn parse_with_origin(name: &str, origin: &str, text: &str) -> Result<Self, ConfigErrors> {
        Self::parse_from_origin(name, origin, text, StudyFileSource::Disk)
    }

    fn parse_from_origin(
        name: &str,
        origin: &str,
        text: &str,
        from: StudyFileSource,
    ) -> Result<Self, ConfigErrors> {
        let mut faults = DiagnosticCollector::new(origin, text);
        let study = Self::read_study(name, from, &mut faults);
        // If the file has faults, faults of single points are reported too, unless another fault has the same place.
        let of_points =
            study.as_ref().filter(|_| !faults.is_empty()).and_then(|study| study.check_plans().err());
        let sources = faults.from_sources().to_vec();
        faults.finish(study).map_err(|mut found| {
            let place = |fault: &ConfigDiagnostic| {
                (sources.iter().position(|source| source.name == fault.file), fault.line, fault.column)
            };
            let known: Vec<_> = found.faults.iter().map(place).collect();
            let of_points = of_points.into_iter().flat_map(|of_points| of_points.faults);
            found.faults.extend(of_points.filter(|fault| !known.contains(&place(fault))));
            found.faults.sort_by_key(place);
            found
        })
    }

    fn read_study(name: &str, from: StudyFileSource, faults: &mut DiagnosticCollector) -> Option<Self> {
        let mut tree = usher_config::read_document(&FORMAT, from.file_environment(), faults)?;
        services::insert_service_configs(&mut tree, from.file_environment(), faults);
        processors::insert_host_profiles(&mut tree, from.file_environment(), faults);
        // The study keeps the text as written, because an axis may choose another preset.
        let mut whole = tree.clone();
        let (file, named) = read_typed(&mut whole, from, &mut StudyFileCache::default(), faults)?;
        let scenario = Scenario::new(file.clone(), named);
        for (path, message) in axis::check_axes(&file).into_iter().chain(check::check_scenario(&scenario)) {
            report_setting_fault(&whole, path, message, faults);
        }
        let (sources, warnings) = (faults.from_sources().to_vec(), faults.warnings());
        let study = Self { name: name.to_owned(), sources, warnings, file, tree, from };
        study.check_each(faults);
        Some(study)
    }

    /// Sets each value of each axis alone in the file, to check that it fits its setting.
    fn check_each(&self, faults: &mut DiagnosticCollector) {
        let mut memo = StudyFileCache::default();
        for mode in StudyMode::ALL {
            let Some(base) = self.build_base_tree(mode, &PlanOverrides::default(), faults) else { continue };
            for axis in 0..self.file.axes.len() {
                for choice in self.axis_choices(axis, mode, None, faults) {
                    let mut tree = base.clone();
                    if apply_setting_changes(&mut tree, &choice.changes, faults) {
                        read_typed(&mut tree, self.from, &mut memo, faults);
                    }
                }
            }
        }
    }

    /// Reports settings without effect. Checks the file after the mode and `--set`, and again with each value of each
    /// axis and choice alone. `varied` are the paths of settings that change.
    fn check_idle<'a>(
        &self,
        base: &TreeNode,
        choices: impl Iterator<Item = &'a PlannedAxisValue>,
        varied: &[String],
        memo: &mut StudyFileCache,
        faults: &mut DiagnosticCollector,
    ) {
        let as_it_is = std::iter::once((base.clone(), base.clone()));
        let with_each = choices.map(|choice| {
            let (mut tree, mut alone) =
                (base.clone(), TreeNode::from_value(&ConfigValue::Table(OrderedMap::default()), &None));
            for put in &choice.changes {
                // The results are ignored: a setting that has no place in the tree is reported when the points are
                // built.
                let _ = setting::insert_setting_node(&mut tree, &put.path, put.node.clone(), &put.path_span);
                let _ = setting::insert_setting_node(&mut alone, &put.path, put.node.clone(), &put.path_span);
            }
            (tree, alone)
        });
        for (mut tree, given) in as_it_is.chain(with_each) {
            let Some((file, named)) = read_typed(&mut tree, self.from, memo, faults) else { continue };
            for (path, message) in check::find_idle_settings(&Scenario::new(file, named), &given, varied) {
                report_setting_fault(&tree, path, message, faults);
            }
        }
    }

    /// Returns the paths of all settings that a mode, an axis or a choice varies.
    fn varied_paths(&self) -> Vec<String> {
        let modes = StudyMode::ALL.into_iter().flat_map(|mode| self.mode_setting_changes(mode));
        let axes = self.file.axes.iter().enumerate();
        let cases = axes
            .flat_map(|(i, axis)| axis.cases.names().flat_map(move |case| self.axis_case_changes(i, case)));
        let choices = self.file.choices.iter().enumerate().flat_map(|(i, choice)| {
            let entries =
                move |case: &str| self.table_setting_changes(check::keys!["choices", i, "cases", case]);
            choice.cases.names().flat_map(entries)
        });
        let paths = modes.chain(cases).chain(choices).map(|put| put.path);
        paths.chain(self.file.axes.iter().flat_map(|axis| axis.set.0.iter().cloned())).collect()
    }

    /// Reads a study file.
    ///
    /// # Errors
    /// The file cannot be read or has faults.
    pub fn load(path: &Path) -> Result<Self, LoadError> {
        let text = std::fs::read_to_string(path)
            .map_err(|source| LoadError::Unreadable { path: path.to_owned(), source })?;
        let name = path.file_stem().map_or_else(|| "study".into(), |stem| stem.to_string_lossy());
        Ok(Self::parse_from_origin(&name, &path.display().to_string(), &text, StudyFileSource::Disk)?)
    }

    /// Opens a founding study by its name, or else a file.
    ///
    /// # Errors
    /// There is neither, or it has faults.
    pub fn open(name: &str) -> Result<Self, LoadError> {
        match founding::find_founding_study(name) {
            Some(study) => Ok(Self::parse(study.name, &format!("{}.toml", study.name), study.text)?),
            None if Path::new(name).exists() => Self::load(Path::new(name)),
            None => Err(LoadError::UnknownName { name: name.to_owned() }),
        }
    }

    /// The study's name in rows and reports.
    pub fn name(&self) -> &str {
        &self.name
    }
    /// The text of the file, without its includes.
    pub fn file_text(&self) -> &str {
        self.sources.first().map_or("", |source| &source.text)
    }
    /// Returns a digest of the file's text and its includes, in hexadecimal.
    pub fn digest(&self) -> String {
        hex_digest(self.concatenated_source_text().as_bytes())
    }
    /// Returns the text of the file and of its includes, in reading order.
    fn concatenated_source_text(&self) -> String {
        self.sources.iter().map(|source| source.text.as_str()).collect()
    }
    /// Warnings about valid settings that should be written otherwise.
    pub fn warnings(&self) -> &[ConfigDiagnostic] {
        &self.warnings
    }
    /// The typed file, before modes and axes.
    pub fn file(&self) -> &StudyFile {
        &self.file
    }

    /// Builds the plans of all modes, to check every point of each.
    ///
    /// # Errors
    /// All faults of any point.
    pub fn check_plans(&self) -> Result<(), ConfigErrors> {
        let mut faults = DiagnosticCollector::of(self.sources.clone());
        for mode in StudyMode::ALL {
            self.make_plan(mode, &PlanOverrides::default(), &mut faults);
        }
        faults.finish(Some(()))
    }

    /// Builds the plan: all combinations of the axes' values.
    ///
    /// # Errors
    /// All faults of the overrides or of any point.
    pub fn build_plan(&self, mode: StudyMode, overrides: &PlanOverrides) -> Result<StudyPlan, ConfigErrors> {
        let mut faults = DiagnosticCollector::of(self.sources.clone());
        let plan = self.make_plan(mode, overrides, &mut faults);
        faults.finish(plan)
    }

    fn make_plan(
        &self,
        mode: StudyMode,
        overrides: &PlanOverrides,
        faults: &mut DiagnosticCollector,
    ) -> Option<StudyPlan> {
        if overrides.replications == Some(0) {
            faults.add(None, "--replications 0: must be 1 or more".to_owned());
        }
        let base = self.build_base_tree(mode, overrides, faults)?;
        let axes = &self.file.axes;
        let choices: Vec<Vec<PlannedAxisValue>> = (0..axes.len())
            .map(|i| self.axis_choices(i, mode, values_of(overrides, &axes[i]), faults))
            .collect();
        for (name, _) in &overrides.set {
            // `build_base_tree` reports this for an axis with a path.
            let cases = axes.iter().zip(&choices).filter(|(axis, _)| axis.set.0.is_empty());
            let mut cases = cases.flat_map(|(_, choices)| choices);
            let set = |choice: &&PlannedAxisValue| {
                let mut puts = choice.changes.iter();
                puts.any(|put| {
                    setting::covers_setting(&put.path, name) || presets::overrides_setting(name, &put.path)
                })
            };
            if let Some(PlannedAxisValue { setting: AxisSetting { axis, text, .. }, .. }) = cases.find(set) {
                let message = format!(
                    "--set {name}: the axis \"{axis}\" overrides it at \"{text}\": leave that value out with --set \
                     {axis}=…, or change the file"
                );
                faults.add(None, message);
            }
        }
        let variants = self.choice_variants(mode);
        let mut memo = StudyFileCache::default();
        // A setting without effect under an override is accepted, because it has an effect in other runs of the file.
        let varied =
            self.varied_paths().into_iter().chain(overrides.set.iter().map(|(name, _)| name.clone()));
        let varied: Vec<String> = varied.collect();
        self.check_idle(&base, choices.iter().flatten().chain(&variants), &varied, &mut memo, faults);
        let count = choices
            .iter()
            .try_fold(variants.len(), |n, c| n.checked_mul(c.len()).filter(|&n| n <= MAX_POINTS));
        let Some(count) = count else {
            faults.add(
                base.position_of(&[tree::PathStep::Key("axes".to_owned())]),
                format!("the plan has more than {MAX_POINTS} points"),
            );
            return None;
        };
        let hash = self.plan_hash((mode, overrides), &base, &choices, &variants);
        let mut points = Vec::with_capacity(count);
        for index in 0..count {
            // Stop after 100 faults: a faulty value is already reported at its first point, and planning would take
            // long.
            if faults.len() >= 100 {
                break;
            }
            let mut rest = index;
            let mut chosen: Vec<&PlannedAxisValue> = Vec::with_capacity(axes.len());
            for choices in choices.iter().rev() {
                chosen.push(&choices[rest % choices.len()]);
                rest /= choices.len();
            }
            if mode == StudyMode::Sensitivity {
                chosen.push(&variants[rest]);
            }
            chosen.reverse();
            points.extend(self.build_plan_point((index, mode), &base, &chosen, overrides, &mut memo, faults));
        }
        let scenarios: Vec<&Scenario> = points.iter().map(|point| &point.scenario).collect();
        for (path, message) in check::find_misleading_settings(&scenarios, &base, &varied) {
            let steps = base.resolve_keys(&path);
            faults.add_warning(base.position_of(&steps), format!("{}: {message}", tree::format_path(&steps)));
        }
        let planned = axes.iter().zip(&choices).map(|(axis, choices)| PlannedAxis {
            name: axis.name.clone(),
            label: axis.label().to_owned(),
            unit: axis::axis_unit(axis),
            values: choices.iter().map(|c| c.setting.clone()).collect(),
        });
        let mut planned: Vec<PlannedAxis> = planned.collect();
        let mut figures = self.file.figures.clone();
        if mode == StudyMode::Sensitivity {
            let values = variants.iter().map(|v| v.setting.clone()).collect();
            let (name, label) = (VARIANT.to_owned(), "Choice".to_owned());
            planned.insert(0, PlannedAxis { name, label, unit: None, values });
            for figure in &mut figures {
                figure.filter.insert(VARIANT.to_owned(), ConfigValue::Text(DEFAULT.to_owned()));
            }
        }
        Some(StudyPlan {
            study: self.name.clone(),
            mode,
            axes: planned,
            points,
            figures,
            warnings: faults.warnings(),
            hash,
        })
    }

    fn build_plan_point(
        &self,
        (index, mode): (usize, StudyMode),
        base: &TreeNode,
        chosen: &[&PlannedAxisValue],
        overrides: &PlanOverrides,
        memo: &mut StudyFileCache,
        faults: &mut DiagnosticCollector,
    ) -> Option<PlanPoint> {
        let mut tree = base.clone();
        for choice in chosen {
            if !apply_setting_changes(&mut tree, &choice.changes, faults) {
                return None;
            }
        }
        let (file, named) = read_typed(&mut tree, self.from, memo, faults)?;
        let mut scenario = Scenario::new(file, named);
        for (path, message) in check::check_scenario(&scenario) {
            report_setting_fault(&tree, path, message, faults);
        }
        if mode == StudyMode::Lab && self.file.has_lab() {
            for message in lab::lab_obstacles(&scenario) {
                report_setting_fault(&tree, check::keys!["lab"], message, faults);
            }
        }
        for (axis, choice) in
            self.file.axes.iter().zip(chosen.iter().skip(chosen.len() - self.file.axes.len()))
        {
            let Some(relax) = &axis.relax else { continue };
            let from = axis::value_in_unit(&relax.from, axis::axis_unit(axis).as_deref());
            if choice.setting.number.zip(from).is_some_and(|(at, from)| at >= from) {
                let precision = &mut scenario.run.replications.precision;
                if *precision < relax.precision {
                    *precision = relax.precision;
                }
            }
        }
        if let Some(n) = overrides.replications {
            scenario.run.replications.min = PositiveCount::from_u32(n);
            scenario.run.replications.max = PositiveCount::from_u32(n);
        }
        if let Some(seed) = overrides.seed {
            scenario.run.seed = seed;
        }
        let settings: Vec<AxisSetting> = chosen.iter().map(|c| c.setting.clone()).collect();
        let mut seed = Seed::new(scenario.run.seed);
        let by_axis = settings.iter().skip(settings.len() - self.file.axes.len());
        for (axis, setting) in self.file.axes.iter().zip(by_axis).filter(|(a, _)| !a.common_random_numbers) {
            seed = seed.derive_seed(&format!("{}={}", axis.name, setting.text), 0);
        }
        Some(PlanPoint { index, key: grid_point_key(&settings), settings, scenario, seed })
    }

    /// Returns the tree with the changes of the mode and of plain `--set` arguments.
    fn build_base_tree(
        &self,
        mode: StudyMode,
        overrides: &PlanOverrides,
        faults: &mut DiagnosticCollector,
    ) -> Option<TreeNode> {
        let mut tree = self.tree.clone();
        let mut puts = self.mode_setting_changes(mode);
        for (name, value) in &overrides.set {
            if self.file.axes.iter().any(|a| a.name == *name) {
                continue;
            }
            if let Some(axis) = self.file.axes.iter().find(|axis| {
                axis.set.0.iter().any(|path| path == name || presets::overrides_setting(name, path))
            }) {
                faults.add(
                    None,
                    format!("--set {name}: the axis \"{0}\" varies it: write --set {0}=…", axis.name),
                );
                continue;
            }
            if !name.contains('.') {
                let known = self.file.axes.iter().map(|a| a.name.as_str());
                faults.add(
                    None,
                    format!("--set {name}: there is no axis \"{name}\"{}", name_hint(name, known)),
                );
                continue;
            }
            puts.push(SettingChange {
                path: name.clone(),
                node: TreeNode::from_value(&parse_bare_value(value), &None),
                path_span: None,
            });
        }
        apply_setting_changes(&mut tree, &puts, faults).then_some(tree)
    }

    /// Returns the changes of `[quick]`, or of the table of another mode.
    fn mode_setting_changes(&self, mode: StudyMode) -> Vec<SettingChange> {
        let mut puts = Vec::new();
        let at = |keys: &[&str]| {
            let keys: Vec<String> = keys.iter().map(|&k| k.to_owned()).collect();
            self.tree.resolve_keys(&keys).iter().try_fold(&self.tree, |node, step| node.child(step))
        };
        let table = mode.name();
        for key in ["duration", "warmup"] {
            puts.extend(at(&[table, key]).map(|node| setting_change(format!("run.{key}"), node, None)));
        }
        for key in ["min", "max", "precision"] {
            let node = at(&[table, "replications", key]);
            puts.extend(node.map(|node| setting_change(format!("run.replications.{key}"), node, None)));
        }
        for entry in at(&[table, "set"]).map(TreeNode::entries).unwrap_or_default() {
            puts.push(setting_change(entry.key.clone(), &entry.node, Some(&entry.key_span)));
        }
        puts
    }

    /// Returns the values of an axis.
    fn axis_choices(
        &self,
        index: usize,
        mode: StudyMode,
        given: Option<&str>,
        faults: &mut DiagnosticCollector,
    ) -> Vec<PlannedAxisValue> {
        let axis = &self.file.axes[index];
        let unit = axis::axis_unit(axis);
        let listed = match mode {
            StudyMode::Default => None,
            StudyMode::Quick => axis.quick.as_ref(),
            StudyMode::Full => axis.full.as_ref(),
            StudyMode::Sensitivity => axis.sensitivity.as_ref(),
            StudyMode::Lab => axis.lab.as_ref(),
        };
        // Find the position of each value in the file. A value from the command line has none.
        let place = |list: &str, i: usize| {
            let keys = check::keys!["axes", index, list, i];
            self.tree.position_of(&self.tree.resolve_keys(&keys))
        };
        let values: Vec<(ConfigValue, OptionalPosition)> = match (given, listed) {
            (Some(given), _) => {
                split_axis_values(axis, given, unit.as_deref()).into_iter().map(|v| (v, None)).collect()
            }
            (None, Some(values)) => {
                values.iter().enumerate().map(|(i, v)| (v.clone(), place(mode.name(), i))).collect()
            }
            (None, None) if axis.cases.is_empty() => {
                axis.values.iter().enumerate().map(|(i, v)| (v.clone(), place("values", i))).collect()
            }
            (None, None) => axis.cases.names().map(|n| (ConfigValue::Text(n.to_owned()), None)).collect(),
        };
        let mut choices: Vec<PlannedAxisValue> = Vec::new();
        for (value, span) in values {
            let text = axis::format_value(&value);
            if choices.iter().any(|c| c.setting.text == text) {
                // Report duplicates only for values of the command line, because the check of axes reports those of the
                // file.
                if given.is_some() {
                    faults.add(span, format!("--set {}: \"{text}\" is listed twice", axis.name));
                }
                continue;
            }
            let puts = if axis.cases.is_empty() {
                self.axis_value_changes(index, &value, &span)
            } else if axis.cases.get(&text).is_some() {
                self.axis_case_changes(index, &text)
            } else {
                if given.is_some() {
                    let known = name_hint(&text, axis.cases.names());
                    faults.add(span, format!("--set {}: there is no case \"{text}\"{known}", axis.name));
                }
                continue;
            };
            let number = axis::value_in_unit(&value, unit.as_deref());
            choices.push(PlannedAxisValue {
                setting: AxisSetting { axis: axis.name.clone(), text, number },
                changes: puts,
            });
        }
        choices
    }

    /// For [`StudyMode::Sensitivity`]: returns the default of all choices, and every other value of each choice. For
    /// other modes: the default only.
    fn choice_variants(&self, mode: StudyMode) -> Vec<PlannedAxisValue> {
        let setting = |text| AxisSetting { axis: VARIANT.to_owned(), text, number: None };
        let mut variants =
            vec![PlannedAxisValue { setting: setting(DEFAULT.to_owned()), changes: Vec::new() }];
        if mode != StudyMode::Sensitivity {
            return variants;
        }
        for (i, choice) in self.file.choices.iter().enumerate() {
            for case in choice.cases.names() {
                let puts = self.table_setting_changes(check::keys!["choices", i, "cases", case]);
                variants.push(PlannedAxisValue {
                    setting: setting(format!("{}: {case}", choice.name)),
                    changes: puts,
                });
            }
        }
        variants
    }

    fn axis_value_changes(
        &self,
        axis: usize,
        value: &ConfigValue,
        span: &OptionalPosition,
    ) -> Vec<SettingChange> {
        let puts = self.file.axes[axis].set.0.iter().enumerate().map(|(i, path)| {
            let keys = check::keys!["axes", axis, "set", i];
            let path_span = self.tree.position_of(&self.tree.resolve_keys(&keys));
            SettingChange { path: path.clone(), node: TreeNode::from_value(value, span), path_span }
        });
        puts.collect()
    }

    fn axis_case_changes(&self, axis: usize, case: &str) -> Vec<SettingChange> {
        self.table_setting_changes(check::keys!["axes", axis, "cases", case])
    }

    /// Returns the settings in a table of paths and values.
    fn table_setting_changes(&self, keys: Vec<String>) -> Vec<SettingChange> {
        let node = self.tree.resolve_keys(&keys).iter().try_fold(&self.tree, |node, step| node.child(step));
        let entries = node.map(TreeNode::entries).unwrap_or_default();
        entries.iter().map(|e| setting_change(e.key.clone(), &e.node, Some(&e.key_span))).collect()
    }

    /// Returns a digest of everything that decides this plan's rows. It omits comments, presentation, captures, other
    /// modes and positions in the file.
    fn plan_hash(
        &self,
        (mode, overrides): (StudyMode, &PlanOverrides),
        base: &TreeNode,
        choices: &[Vec<PlannedAxisValue>],
        variants: &[PlannedAxisValue],
    ) -> String {
        const SHOWN: [&str; 7] =
            ["title", "question", "description", "groups", "figures", "recommendations", "capture"];
        // Leave these keys out of the hash, because the base, the choices of each axis and the variants already contain
        // their effects.
        const APPLIED: [&str; 6] = ["quick", "full", "sensitivity", "lab", "axes", "choices"];
        let mut hasher = Sha256::new();
        let mut part = |bytes: &[u8]| {
            hasher.update((bytes.len() as u64).to_be_bytes());
            hasher.update(bytes);
        };
        part(self.name.as_bytes());
        let decides = |key: &str| !SHOWN.contains(&key) && !APPLIED.contains(&key);
        for entry in base.entries().iter().filter(|entry| decides(&entry.key)) {
            part(entry.key.as_bytes());
            part(format!("{:?}", entry.node.to_value()).as_bytes());
        }
        part(format!("{:?}", self.file.requested_metrics()).as_bytes());
        part(mode.name().as_bytes());
        let of_axes = self.file.axes.iter().zip(choices).map(|(axis, choices)| {
            // A value without a unit has the unit of the axis.
            let relax = axis.relax.as_ref().map(|relax| {
                let numbers: Vec<_> = choices.iter().map(|choice| choice.setting.number).collect();
                (relax, axis::value_in_unit(&relax.from, axis::axis_unit(axis).as_deref()), numbers)
            });
            (format!("{} {} {relax:?}", axis.name, axis.common_random_numbers), &choices[..])
        });
        for (axis, choices) in of_axes.chain([(VARIANT.to_owned(), variants)]) {
            part(axis.as_bytes());
            part(&(choices.len() as u64).to_be_bytes());
            for PlannedAxisValue { setting, changes: puts } in choices {
                part(setting.text.as_bytes());
                let puts: Vec<_> = puts.iter().map(|put| (&put.path, put.node.to_value())).collect();
                part(format!("{puts:?}").as_bytes());
            }
        }
        part(format!("{:?} {:?}", overrides.seed, overrides.replications).as_bytes());
        to_hex(&hasher.finalize())
    }
}

/// Reads a typed study. Fills in presets and processors, removes the services' configurations, and reads the files that
/// the tree names.
fn read_typed(
    tree: &mut TreeNode,
    from: StudyFileSource,
    memo: &mut StudyFileCache,
    faults: &mut DiagnosticCollector,
) -> Option<(StudyFile, StudyInputFiles)> {
    presets::apply_transport_presets(tree);
    processors::replace_processors_by_costs(tree, faults);
    let services =
        services::extract_service_configs(tree, from.file_environment(), &mut memo.services, faults);
    let certificates =
        certificates::read_certificates(tree, from.file_environment(), &mut memo.certificates, faults);
    let read = usher_config::read_typed::<StudyFile>(tree, setting::is_self_contained, faults);
    Some((read.value.filter(|_| read.is_complete)?, (services, certificates)))
}

/// Returns a digest in hexadecimal.
pub(crate) fn hex_digest(bytes: &[u8]) -> String {
    to_hex(&Sha256::digest(bytes))
}

fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut hex, byte| {
        let _ = write!(hex, "{byte:02x}");
        hex
    })
}

fn setting_change(path: String, node: &TreeNode, path_span: Option<&OptionalPosition>) -> SettingChange {
    let path_span = path_span.unwrap_or(&node.span).clone();
    SettingChange { path, node: node.clone(), path_span }
}

/// Sets values in a tree. Reports a value without a place and returns false.
fn apply_setting_changes(
    tree: &mut TreeNode,
    puts: &[SettingChange],
    faults: &mut DiagnosticCollector,
) -> bool {
    let mut all = true;
    for put in puts {
        if let Err(message) = setting::insert_setting_node(tree, &put.path, put.node.clone(), &put.path_span)
        {
            faults.add(put.path_span.clone(), message);
            all = false;
        }
    }
    all
}

/// Reports a finding at its place, unless a faulty part left out there may be the cause.
fn report_setting_fault(
    tree: &TreeNode,
    path: Vec<String>,
    message: String,
    faults: &mut DiagnosticCollector,
) {
    let steps = tree.resolve_keys(&path);
    if tree.has_faulty_node_at(&steps) {
        return;
    }
    faults.add(tree.position_of(&steps), format!("{}: {message}", tree::format_path(&steps)));
}

/// Returns the last values that the overrides give an axis.
fn values_of<'a>(overrides: &'a PlanOverrides, axis: &StudyAxis) -> Option<&'a str> {
    overrides.set.iter().rev().find(|(name, _)| *name == axis.name).map(|(_, values)| values.as_str())
}

/// Parses a value of `--set`: numbers, switches, arrays and tables as in TOML, any other text as text.
fn parse_bare_value(text: &str) -> ConfigValue {
    tree::parse_value(text).unwrap_or_else(|| ConfigValue::Text(text.trim().to_owned()))
}

/// Splits the values of `--set axis=…` at commas, except within a value of the file that contains one.
fn split_axis_values(axis: &StudyAxis, given: &str, unit: Option<&str>) -> Vec<ConfigValue> {
    let written: Vec<ConfigValue> = match axis.cases.is_empty() {
        true => [
            Some(&axis.values),
            axis.quick.as_ref(),
            axis.full.as_ref(),
            axis.sensitivity.as_ref(),
            axis.lab.as_ref(),
        ]
        .into_iter()
        .flatten()
        .flatten()
        .cloned()
        .collect(),
        false => axis.cases.names().map(|n| ConfigValue::Text(n.to_owned())).collect(),
    };
    let parts: Vec<&str> = given.split(',').collect();
    let mut values = Vec::new();
    let mut i = 0;
    while i < parts.len() {
        let known = (i + 1..=parts.len()).rev().find_map(|j| {
            let text = parts[i..j].join(",");
            let text = axis::format_value(&ConfigValue::Text(text.trim().to_owned()));
            written.iter().find(|v| axis::format_value(v) == text).map(|v| (v.clone(), j))
        });
        let (value, next) = known.unwrap_or_else(|| (with_unit(parse_bare_value(parts[i]), unit), i + 1));
        values.push(value);
        i = next;
    }
    values
}

/// Adds the axis's unit to a plain number, if the axis's values have one.
fn with_unit(value: ConfigValue, unit: Option<&str>) -> ConfigValue {
    match (&value, unit) {
        (ConfigValue::Integer(_) | ConfigValue::Float(_), Some(unit)) => {
            let text = format!("{value} {unit}");
            if Quantity::parse(&text).is_some() { ConfigValue::Text(text) } else { value }
        }
        _ => value,
    }
}
